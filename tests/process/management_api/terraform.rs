//! Terraform creates, plans without a difference, changes and destroys a service account with a key, by the
//! configuration in `deploy/terraform`, and learns no secret.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::Managed;

const SCOPES: &str =
    "orgs:read,orgs:write,users:read,users:write,keys:read,keys:create,keys:rotate,keys:revoke,keys:set";
/// Exit code of a plan with differences.
const DIFFERS: i32 = 2;

/// Python at which `deploy/setup.sh` installs Terraform.
fn python() -> PathBuf {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/terraform/bin/python");
    assert!(python.exists(), "{} is missing: run `make setup` (deploy/setup.sh), which installs it", python.display());
    python
}

/// A directory with the configuration, its variables and its state file.
struct Terraform {
    dir: tempfile::TempDir,
    server: String,
}

impl Terraform {
    fn new(managed: &Managed, token: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for file in ["main.tf", "keygate.sh"] {
            std::fs::copy(Path::new("deploy/terraform").join(file), dir.path().join(file)).unwrap();
        }
        // Apart from what Terraform writes, in which the secrets are looked for.
        std::fs::write(managed.setup.path().join("token.txt"), token).unwrap();
        Self { dir, server: format!("http://{}", managed.api) }
    }

    fn set(&self, variables: &Value) {
        std::fs::write(self.dir.path().join("terraform.tfvars.json"), variables.to_string()).unwrap();
    }

    fn run(&self, managed: &Managed, arguments: &[&str]) -> Output {
        let mut command = Command::new(python());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/terraform/terraform.py"));
        command.args(arguments).args(["-no-color", "-input=false"]).current_dir(self.dir.path());
        command.env("KEYGATE_SERVER", &self.server);
        command.env("KEYGATE_TOKEN_FILE", managed.setup.path().join("token.txt"));
        command.env("CHECKPOINT_DISABLE", "1").env_remove("KEYGATE_CA");
        command.output().unwrap()
    }

    /// Runs a command that must succeed.
    fn ok(&self, managed: &Managed, arguments: &[&str]) -> String {
        let output = self.run(managed, arguments);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{arguments:?}: {said}");
        said
    }

    fn apply(&self, managed: &Managed) -> String {
        self.ok(managed, &["apply", "-auto-approve"])
    }

    /// True when a plan shows differences.
    fn differs(&self, managed: &Managed) -> bool {
        let output = self.run(managed, &["plan", "-detailed-exitcode"]);
        let code = output.status.code();
        assert!([Some(0), Some(DIFFERS)].contains(&code), "{}", String::from_utf8_lossy(&output.stdout));
        code == Some(DIFFERS)
    }

    /// All that Terraform has written.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut folders = vec![self.dir.path().to_owned()];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push((path.clone(), std::fs::read(path).unwrap()));
                }
            }
        }
        files
    }
}

/// A key that was made offline.
struct Offline {
    id: String,
    text: String,
    sha256: String,
}

fn make_offline(managed: &Managed, arguments: &[&str]) -> Offline {
    let line = managed.setup.ok(&[&["key", "generate"], arguments].concat());
    let [id, text, sha256] = [0, 1, 2].map(|word| line.split(' ').nth(word).unwrap().to_owned());
    Offline { id, text, sha256 }
}

#[test]
fn terraform_creates_changes_and_destroys_a_service_with_keys_and_learns_no_secret() {
    let managed = Managed::embedded();
    let gateway = managed.setup.start();
    let token = managed.token(SCOPES);
    let show = |path: &str| managed.call(&token, "GET", path, &[], &Value::Null);
    let org = managed.call(&token, "POST", "/orgs", &[], &json!({ "name": "acme" })).json();
    managed.call(&token, "POST", "/orgs/acme/users", &[], &json!({ "email": "ada@acme.example" }));
    let [first, second] = [(); 2].map(|()| make_offline(&managed, &["--tag", org["tag"].as_str().unwrap()]));
    let rotated = make_offline(&managed, &["--id", &first.id]);
    let status = |key: &str| managed.setup.client().get("/", key).status;
    let keys = |concurrent: u32| {
        let key = |key: &Offline| json!({ "id": key.id, "sha256": key.sha256, "policy": { "concurrent": concurrent } });
        json!({ "first": key(&first), "second": key(&second) })
    };
    let mut variables = json!({
        "org": "acme", "service": "nightly", "responsible": "ada@acme.example", "permissions": ["queries:read"],
        "concurrent": 7, "keys": keys(3)
    });

    let terraform = Terraform::new(&managed, &token);
    terraform.set(&variables);
    let mut said = vec![terraform.ok(&managed, &["init"])];
    assert!(terraform.differs(&managed), "nothing is there yet");
    said.push(terraform.apply(&managed));
    assert_eq!([status(&first.text), status(&second.text)], [200, 200]);
    assert_eq!(show("/orgs/acme").json()["concurrent"], 7);
    assert_eq!(show("/orgs/acme/users/nightly").json()["permissions"], json!(["queries:read"]));
    assert!(!terraform.differs(&managed), "all is as planned");

    // A budget, permissions and a policy change in place: the keys stay what they are.
    variables["concurrent"] = json!(9);
    variables["permissions"] = json!(["queries:read", "queries:write"]);
    variables["keys"] = keys(4);
    terraform.set(&variables);
    assert!(terraform.differs(&managed));
    let created = show(&format!("/keys/{}", first.id)).json()["created"].clone();
    said.push(terraform.apply(&managed));
    let key = show(&format!("/keys/{}", first.id)).json();
    assert_eq!(
        (&key["created"], &key["policy"]["concurrent"], &key["status"]),
        (&created, &json!(4), &json!("active"))
    );
    assert_eq!(show("/orgs/acme").json()["concurrent"], 9);
    assert_eq!(show("/orgs/acme/users/nightly").json()["permissions"].as_array().unwrap().len(), 2);
    assert!(!terraform.differs(&managed));

    // The secret of a key is rotated.
    variables["keys"]["first"]["sha256"] = json!(rotated.sha256);
    terraform.set(&variables);
    said.push(terraform.apply(&managed));
    assert_eq!([status(&first.text), status(&rotated.text), status(&second.text)], [401, 200, 200]);
    assert!(!terraform.differs(&managed));

    // One key is taken out.
    variables["keys"].as_object_mut().unwrap().remove("second");
    terraform.set(&variables);
    said.push(terraform.apply(&managed));
    assert_eq!([status(&rotated.text), status(&second.text)], [200, 401]);
    said.push(terraform.ok(&managed, &["plan", "-out=plan.bin"]));

    let keys = [&first, &rotated, &second];
    // The secrets also without the ids, which are in front of them.
    let secrets: Vec<&str> = keys.iter().flat_map(|key| [&*key.text, &key.text[17..]]).chain([&*token]).collect();
    let no_secret = |secrets: &[&str], said: &[String]| {
        let of_files = terraform.files().into_iter().map(|(path, bytes)| (path.display().to_string(), bytes));
        let of_said = said.iter().map(|said| ("output".to_owned(), said.clone().into_bytes()));
        for (place, bytes) in of_files.chain(of_said) {
            for secret in secrets {
                let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!found, "a secret is in {place}");
            }
        }
    };
    no_secret(&secrets, &said);
    // The search finds what is there.
    let state = std::fs::read_to_string(terraform.dir.path().join("terraform.tfstate")).unwrap();
    assert!(state.contains(&first.id) && state.contains(&rotated.sha256), "{state}");

    said.push(terraform.ok(&managed, &["destroy", "-auto-approve"]));
    assert_eq!(status(&rotated.text), 401);
    assert_eq!(show("/orgs/acme/users/nightly").code(), "no_such_user");
    assert_eq!(show(&format!("/keys/{}", first.id)).json()["status"], "revoked");
    assert_eq!(show("/orgs/acme").json(), org);
    no_secret(&secrets, &said);
    gateway.stop();
}
