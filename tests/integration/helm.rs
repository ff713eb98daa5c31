//! The Helm chart: for each set of values, what it renders fits the schemas of Kubernetes, and its
//! configuration is valid.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::KEYGATE;
use crate::support::page::block;

const CHART: &str = "deploy/helm/keygate";
/// Versions of Kubernetes that the chart is for.
const VERSIONS: [&str; 3] = ["1.29", "1.30", "1.31"];

/// Sets of values by name, as teams would write them.
const VALUES: [(&str, &str); 10] = [
    ("defaults", "{}"),
    ("embedded", "state: { type: embedded }\nreplicas: 3\n"),
    ("redis with kept journals", "persistence: { enabled: true, size: 50Gi, storageClass: fast }\n"),
    (
        "redis with its settings",
        "state: { type: redis, redis: { urlSecret: { name: r, key: u },\n\
         \x20 settings: { on_unavailable: known_keys, prefix: kg } } }\n",
    ),
    (
        "by digest",
        "image: { repository: r.internal/keygate, digest: \
         'sha256:0000000000000000000000000000000000000000000000000000000000000000' }\nimagePullSecrets: [{ name: pull \
         }]\n",
    ),
    (
        "autoscaled",
        "autoscaling: { enabled: true, maxReplicas: 40, inFlight: 500 }\nresources: { limits: { cpu: '2' } }\n",
    ),
    (
        "operated by Prometheus",
        "serviceMonitor: { enabled: true, labels: { release: p } }\nprometheusRule: { enabled: true }\n\
         podDisruptionBudget: { enabled: true, maxUnavailable: 25% }\n",
    ),
    (
        "routes, limits and an ingress",
        "routes: [{ name: list, methods: [GET], path: /api/queries, permission: 'queries:read' }]\n\
         config: { limits: { key: { requests: 10, per: 1h, burst: 5 } }, timeouts: { lame_duck: 9s },\n\
         \x20 http: { max_connections: 1000 }, trusted_proxies: [10.0.0.0/16] }\n\
         ingress: { enabled: true, className: nginx, host: api.example.com, tlsSecret: api }\nlameDuckSeconds: 10\n",
    ),
    ("several upstreams and a dashboard", SEVERAL),
    (
        "placed and reached with care",
        "networkPolicy: { enabled: true, clients: [{ podSelector: { matchLabels: { role: edge } } }] }\n\
         tolerations: [{ key: edge, operator: Exists }]\nnodeSelector: { pool: edge }\npodAnnotations: { a: b }\n\
         env: [{ name: A, value: b }]\nvolumes: [{ name: tls, secret: { secretName: api } }]\n\
         volumeMounts: [{ name: tls, mountPath: /etc/tls, readOnly: true }]\npriorityClassName: high\n\
         topologySpreadConstraints: [{ maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway,\n\
         \x20 labelSelector: { matchLabels: { app.kubernetes.io/name: keygate } } }]\n",
    ),
];

/// Two upstreams, and a dashboard on a host of its own.
const SEVERAL: &str = "\
upstreams: { billing: { endpoints: ['http://billing:8080'] }, Api_v2: { endpoints: ['http://api:8081'] } }
routes: [{ name: b, path: '/billing/**', upstream: billing }, { name: a, path: '/**', upstream: Api_v2 }]
networkPolicy:
  upstreams: { billing: { podLabels: { app: billing }, port: 8080 }, Api_v2: { podLabels: { app: api }, port: 8081 } }
dashboard: { enabled: true, host: keys.example.com, ingress: { enabled: true, className: nginx, tlsSecret: keys } }
ingress: { enabled: true, className: nginx, host: api.example.com, tlsSecret: api }
config: { trusted_proxies: [10.0.0.0/16], session: { api: 'https://api.example.com' } }
";

fn helm(arguments: &[&str], values: &str) -> Result<String, String> {
    let mut helm = Command::new("target/kubernetes/helm/helm");
    helm.args(arguments).args([CHART, "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut helm = helm.spawn().expect("helm is installed, as `make setup` does");
    helm.stdin.take().unwrap().write_all(values.as_bytes()).unwrap();
    let output = helm.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn render(values: &str) -> String {
    helm(&["template", "kg", "--namespace", "apis"], values).unwrap()
}

/// The objects of this kind, each with its text.
fn objects<'a>(rendered: &'a str, kind: &str) -> Vec<&'a str> {
    let line = format!("\nkind: {kind}\n");
    rendered.split("\n---\n").filter(|object| object.contains(&line)).collect()
}

/// Manifests for teams without Helm are what the chart renders. To renew them, run the commands of docs/install.md.
#[test]
fn plain_manifests_are_what_the_chart_renders() {
    for (file, values) in [("redis", "{}"), ("embedded", "state: { type: embedded }\n")] {
        let shipped = fs::read_to_string(format!("deploy/kubernetes/{file}.yaml")).unwrap();
        assert!(shipped == helm(&["template", "keygate"], values).unwrap(), "{file}.yaml is not up to date");
    }
}

#[test]
fn chart_passes_the_linter_with_each_set_of_values() {
    for (name, values) in VALUES {
        helm(&["lint", "--strict"], values).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn rendered_objects_fit_the_schemas_of_kubernetes() {
    let directory = TempDir::new().unwrap();
    // Kinds of the Prometheus operator have no schema there.
    let known = |object: &&str| !object.contains("monitoring.coreos.com");
    let rendered: Vec<String> = VALUES.iter().map(|(_, values)| render(values)).collect();
    let all: Vec<&str> = rendered.iter().flat_map(|rendered| rendered.split("\n---\n").filter(known)).collect();
    assert!(all.len() > 70, "{} objects", all.len());
    let file = directory.path().join("all.yaml");
    fs::write(&file, all.join("\n---\n")).unwrap();
    for version in VERSIONS {
        let mut validate = Command::new("target/kubernetes/venv/bin/kubernetes-validate");
        let output = validate.args(["--strict", "-k", version]).arg(&file).output();
        let output = output.expect("kubernetes-validate is installed, as `make setup` does");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{version}: {text}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.matches(" passed for resource ").count(), all.len(), "{version}: {text}");
    }
}

#[test]
fn rendered_configurations_are_valid() {
    for (name, values) in VALUES {
        let rendered = render(values);
        let config = objects(&rendered, "ConfigMap")[0].split("keygate.yaml: |\n").nth(1).unwrap();
        let config: String = config.lines().map(|line| format!("{}\n", line.get(4..).unwrap_or_default())).collect();
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("keygate.yaml");
        fs::write(&file, &config).unwrap();
        let mut check = Command::new(KEYGATE);
        check.args(["check", "--config"]).arg(&file).env("KEYGATE_REDIS_URL", "redis://127.0.0.1:6379");
        let output = check.output().unwrap();
        assert!(output.status.success(), "{name}: {config}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn state_decides_the_kind_and_the_number_of_gateways() {
    let of = |name: &str| render(VALUES.iter().find(|(known, _)| *known == name).unwrap().1);
    let defaults = of("defaults");
    assert_eq!((objects(&defaults, "Deployment").len(), objects(&defaults, "StatefulSet").len()), (1, 0));
    assert!(objects(&defaults, "Deployment")[0].contains("replicas: 2\n"));
    let embedded = of("embedded");
    let set = objects(&embedded, "StatefulSet")[0];
    assert!(set.contains("replicas: 1\n") && set.contains("volumeClaimTemplates:"), "{set}");
    assert!(!embedded.contains("KEYGATE_REDIS_URL"));
    let kept = of("redis with kept journals");
    assert!(objects(&kept, "StatefulSet")[0].contains("storage: 50Gi"));
    let scaled = of("autoscaled");
    assert!(!objects(&scaled, "Deployment")[0].contains("replicas:"), "the autoscaler decides");
}

/// The commands of the page, with `helm template` in the place of the installation, which needs a cluster.
#[test]
fn chart_takes_the_values_and_the_secret_of_the_page() {
    let programs = "kubectl() { echo \"# kubectl $*\"; }\n\
                    helm() { [ \"$1\" = install ] && shift && target/kubernetes/helm/helm template \"$@\"; }\n";
    let script = format!("{programs}{}", block("kubectl create secret generic keygate-re"));
    let output = Command::new("bash").args(["-euc", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rendered = String::from_utf8(output.stdout).unwrap();
    assert!(
        rendered.contains("# kubectl create secret generic keygate-redis --from-literal=url=rediss://"),
        "{rendered}"
    );
    assert!(rendered.contains("secretKeyRef:") && rendered.contains("http://store:8081"), "{rendered}");
    let secret = rendered.split("secretKeyRef:").nth(1).unwrap().lines().take(3).collect::<String>();
    assert!(secret.contains("keygate-redis") && secret.contains("url"), "{secret}");
    assert!(
        rendered.contains("image: \"REGISTRY/keygate") || rendered.contains("image: REGISTRY/keygate"),
        "{rendered}"
    );
}

/// Kubernetes kills the pod after this time; the gateway needs its lame duck and its drain.
#[test]
fn pod_is_not_killed_before_it_has_drained() {
    let rendered = render("lameDuckSeconds: 20\ndrainSeconds: 100\n");
    assert!(rendered.contains("terminationGracePeriodSeconds: 130\n"));
    assert!(rendered.contains("lame_duck: 20s") && rendered.contains("drain: 100s"));
}

#[test]
fn changed_configuration_changes_the_pods() {
    let sum = |values| render(values).split("checksum/config: ").nth(1).unwrap().lines().next().unwrap().to_owned();
    assert_eq!(sum("{}"), sum("replicas: 5\n"));
    assert_ne!(sum("{}"), sum("config: { limits: { key: { requests: 7, per: 1h, burst: 7 } } }\n"));
}

/// Identity headers are true only where nothing but the gateway reaches the upstream.
#[test]
fn only_the_gateway_reaches_the_upstream() {
    let rendered = render("networkPolicy: { upstream: { podLabels: { app: store }, port: 7000 } }\n");
    let policies = objects(&rendered, "NetworkPolicy");
    let upstream = policies.iter().find(|policy| policy.contains("name: kg-keygate-upstream\n")).unwrap();
    let rule = upstream.split("ingress:\n").nth(1).unwrap();
    assert!(!upstream.contains("query-store"), "labels of the values replace the usual ones: {upstream}");
    assert!(upstream.contains("app: store\n") && rule.contains("port: 7000"), "{upstream}");
    assert_eq!(rule.matches("- podSelector:").count(), 1, "{rule}");
    assert!(rule.contains("app.kubernetes.io/name: keygate\n") && rule.contains("app.kubernetes.io/instance: kg"));
    assert_eq!(objects(&render("networkPolicy: { enabled: false }\n"), "NetworkPolicy").len(), 0);
}

#[test]
fn each_of_several_upstreams_is_reached_by_the_gateway_only() {
    let rendered = render(SEVERAL);
    let policies = objects(&rendered, "NetworkPolicy");
    for (name, app, port) in [("billing", "billing", 8080), ("api-v2", "api", 8081)] {
        let named = format!("name: kg-keygate-upstream-{name}\n");
        let policy = policies.iter().find(|policy| policy.contains(&named)).unwrap();
        assert!(policy.contains(&format!("app: {app}\n")) && policy.contains(&format!("port: {port},")), "{policy}");
    }
    assert_eq!(policies.len(), 3, "no policy for an upstream that is not there");
}

#[test]
fn dashboard_has_a_listener_a_service_an_ingress_and_a_policy_of_its_own() {
    let rendered = render(SEVERAL);
    let config = objects(&rendered, "ConfigMap")[0];
    assert!(
        config.contains("origin: https://keys.example.com\n") && config.contains("serves: dashboard\n"),
        "{config}"
    );
    let named = |kind: &str| {
        let found = objects(&rendered, kind).into_iter().find(|object| object.contains("name: kg-keygate-dashboard\n"));
        found.unwrap_or_else(|| panic!("no {kind}"))
    };
    assert!(named("Service").contains("targetPort: dashboard"));
    let ingress = named("Ingress");
    assert!(ingress.contains("host: \"keys.example.com\"") && ingress.contains("name: kg-keygate-dashboard, port"));
    assert!(objects(&rendered, "NetworkPolicy")[0].contains("port: dashboard"));
    assert!(objects(&rendered, "Deployment")[0].contains("name: dashboard, containerPort: 8082"));
}

#[test]
fn pods_run_without_privileges() {
    for (name, values) in VALUES {
        let rendered = render(values);
        let pod = objects(&rendered, "Deployment").into_iter().chain(objects(&rendered, "StatefulSet")).next().unwrap();
        for line in ["runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false", "drop:"] {
            assert!(pod.contains(line), "{name}: {line}");
        }
        assert!(!rendered.contains("kind: Secret\n"), "{name}: secrets are named, not rendered");
    }
}

#[test]
fn operator_of_prometheus_gets_the_alerts_that_are_shipped() {
    let rendered = render("prometheusRule: { enabled: true }\nserviceMonitor: { enabled: true }\n");
    let rule = objects(&rendered, "PrometheusRule")[0];
    let shipped = fs::read_to_string("deploy/prometheus/alerts.yaml").unwrap();
    for line in shipped.lines().filter(|line| line.contains("- alert: ") || line.contains("expr: ")) {
        assert!(rule.contains(line.trim()), "{line}");
    }
    assert!(rule.contains("runbook_url: https://runbooks.example.com/monitoring.md#keygatedown"));
    let own = render("prometheusRule: { enabled: true, runbookBase: 'https://wiki.internal/keygate/' }\n");
    let own = objects(&own, "PrometheusRule")[0].to_owned();
    assert!(own.contains("runbook_url: https://wiki.internal/keygate/monitoring.md#keygatedown"));
    assert!(!own.contains("runbooks.example.com"));
    // The alerts look for job="keygate", which is the name of the chart.
    assert!(objects(&rendered, "ServiceMonitor")[0].contains("jobLabel: app.kubernetes.io/name\n"));
}

#[test]
fn values_that_make_no_sense_are_refused() {
    for (values, reason) in [
        ("replicas: -1\n", "replicas"),
        ("replica: 2\n", "replica"),
        ("state: { type: mysql }\n", "state.type"),
        ("image: { repository: k, digest: latest }\n", "digest"),
        ("state: { type: embedded }\nautoscaling: { enabled: true }\n", "autoscaling needs state.type redis"),
        ("ingress: { enabled: true }\n", "ingress.enabled needs config.trusted_proxies: the networks"),
        ("dashboard: { enabled: true }\n", "dashboard.enabled needs dashboard.host"),
        ("config: { upstreams: { a: { endpoints: ['http://a:1'] } } }\n", "use the values `upstream` or `upstreams`"),
        (
            "config: { session: { providers: [{ client_secret: hunter2 }] } }\n",
            "config.session.providers[0].client_secret is a secret in plain text",
        ),
        (
            "state: { type: redis, redis: { settings: { password: hunter2 } } }\n",
            "state.redis.settings.password is a secret in plain text",
        ),
        (
            "config: { audit: { ship: [{ postgresql: { url: 'postgresql://k:hunter2@db/audit' } }] } }\n",
            "config.audit.ship[0].postgresql.url has a password in its URL",
        ),
    ] {
        let error = helm(&["template", "kg"], values).unwrap_err();
        assert!(error.contains(reason) && !error.contains("hunter2"), "{values}: {error}");
    }
}
