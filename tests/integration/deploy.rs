//! Files in `deploy/`, checked as far as possible without a container engine or an init system.

use std::path::{Path, PathBuf};

use keygate::config::Config;

#[test]
fn container_configurations_are_valid_and_match() {
    let gateway =
        Config::load(Path::new("deploy/container/keygate.yaml")).unwrap_or_else(|problems| panic!("{problems}"));
    let store = query_store::Settings::load(Path::new("deploy/container/query-store.yaml"));
    let store = store.unwrap_or_else(|problems| panic!("{problems}"));
    let upstream = &gateway.upstreams[0].settings.endpoints[0];
    assert_eq!((upstream.host.as_str(), upstream.port), ("query-store", store.listen.port()));
    assert!(
        std::fs::read_to_string("deploy/prometheus/prometheus.yaml")
            .unwrap()
            .contains(&gateway.admin.address.port().to_string())
    );
    let service =
        Config::load(Path::new("deploy/systemd/keygate.yaml")).unwrap_or_else(|problems| panic!("{problems}"));
    let state::Settings::Embedded(state) = &service.state else { panic!("the unit is for one machine") };
    for path in [&service.admin.socket, &state.path, &service.audit.path] {
        assert!(path.starts_with("/var/lib/keygate"), "the unit may not write to {}", path.display());
    }
    let defaults = Config::load(Path::new("config/keygate.yaml")).unwrap_or_else(|problems| panic!("{problems}"));
    let sorted = |mut routes: Vec<keygate::admission::RouteSettings>| {
        routes.sort_by(|a, b| a.name.cmp(&b.name));
        routes
    };
    assert_eq!(sorted(gateway.routes), sorted(defaults.routes));
}

#[test]
fn query_store_is_reachable_only_through_the_gateway() {
    let compose = std::fs::read_to_string("deploy/compose.yaml").unwrap();
    let store = compose.split("\n  query-store:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    assert!(store.contains("networks: [behind]\n"), "{store}");
    assert!(!store.contains("ports:"), "{store}");
    assert!(compose.contains("behind: { internal: true }"));
}

/// The profile `metrics` is of use only where its page can be opened, and it must not take the port of the gateway.
#[test]
fn compose_profile_metrics_can_be_opened_and_is_on_a_page() {
    let compose = std::fs::read_to_string("deploy/compose.yaml").unwrap();
    let prometheus = compose.split("\n  prometheus:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    assert!(prometheus.contains("profiles: [metrics]") && prometheus.contains("ports: [\"127.0.0.1:9090:9090\"]"));
    assert!(std::fs::read_to_string("docs/install.md").unwrap().contains("`--profile metrics`"));
    let scraped = std::fs::read_to_string("deploy/prometheus/prometheus.yaml").unwrap();
    let gateway = Config::load(Path::new("deploy/container/keygate.yaml")).unwrap_or_else(|error| panic!("{error}"));
    assert!(scraped.contains(&format!("keygate:{}\"", gateway.admin.address.port())), "{scraped}");
    let defaults = Config::load(Path::new("config/keygate.yaml")).unwrap_or_else(|error| panic!("{error}"));
    assert_ne!(defaults.admin.address.port(), 9090, "Prometheus itself listens there");
}

#[test]
fn compose_prometheus_unit_and_scripts_are_well_formed() {
    for file in ["deploy/compose.yaml", "deploy/prometheus/prometheus.yaml"] {
        // The settings reader accepts only a plain subset of YAML, which every YAML parser accepts.
        let document = platform::settings::Document::load(Path::new(file));
        assert!(document.is_ok(), "{file}: {document:?}");
    }
    let unit = std::fs::read_to_string("deploy/keygate.service").unwrap();
    let directives = unit.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '[']));
    assert!(directives.clone().count() > 20);
    assert!(
        directives
            .clone()
            .all(|line| line.split_once('=').is_some_and(|(name, _)| name.chars().all(char::is_alphanumeric)))
    );
    for directive in ["Type=notify", "WatchdogSec=30s", "ExecReload=/bin/kill -HUP $MAINPID"] {
        assert!(unit.lines().any(|line| line == directive), "{directive}");
    }
    for file in ["deploy/setup.sh", "deploy/deny.sh", "deploy/run_tests.sh", ".ci/run"] {
        let checked = std::process::Command::new("bash").arg("-n").arg(file).status().unwrap();
        assert!(checked.success(), "{file}");
    }
}

#[test]
fn make_test_runs_every_test_program() {
    let makefile = std::fs::read_to_string("Makefile").unwrap();
    let recipes: Vec<&str> =
        makefile.lines().filter(|line| line.starts_with('\t') && line.contains("cargo test --locked ")).collect();
    let is_run = |argument: &str| recipes.iter().any(|line| format!("{line} ").contains(&format!(" {argument} ")));
    let programs = std::fs::read_dir("tests").unwrap().map(|entry| entry.unwrap().path());
    let names: Vec<String> = programs
        .filter(|path| path.join("main.rs").exists() || path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| format!("--test {}", path.file_stem().unwrap().to_str().unwrap()))
        .collect();
    assert!(names.len() >= 4, "{names:?}");
    let others = ["--lib", "--bins", "--bench fleet", "--doc"].map(str::to_owned);
    for argument in names.into_iter().chain(others) {
        assert!(is_run(&argument), "`make test` does not run {argument}");
    }
}

#[test]
fn filters_of_make_strict_name_tests() {
    let filters = strict_filters();
    assert!(filters.len() >= 3, "{filters:?}");
    for (binary, filter) in filters {
        // A filter that matches nothing runs no test, and succeeds.
        let is_there = source_files(Path::new("tests").join(&binary)).iter().any(|file| is_run(file, &filter));
        assert!(is_there, "`make strict` runs {filter} of {binary}, which names no test");
    }
}

#[test]
fn every_file_that_holds_times_is_in_a_filter_of_make_strict() {
    let filters = strict_filters();
    let mut count = 0;
    for binary in ["integration", "browser", "process"] {
        for file in source_files(Path::new("tests").join(binary)) {
            let text = std::fs::read_to_string(&file).unwrap();
            // This file has the names in strings.
            let is_this = file.ends_with("deploy.rs");
            if !is_this && (text.contains("lenient(") || text.contains("is_strict()")) {
                count += 1;
                let is_strict = filters.iter().any(|(other, filter)| other == binary && is_run(&file, filter));
                assert!(is_strict, "{} holds times, and `make strict` does not run it", file.display());
            }
        }
    }
    assert!(count > 10, "only {count} files were found");
}

/// The test programs that `make strict` runs, each with its filter.
fn strict_filters() -> Vec<(String, String)> {
    let makefile = std::fs::read_to_string("Makefile").unwrap();
    let commands = makefile
        .lines()
        .filter_map(|line| line.trim().strip_prefix("KEYGATE_STRICT=1 cargo test --locked --test "))
        .map(|rest| rest.split_once(' ').unwrap());
    commands.map(|(binary, rest)| (binary.into(), rest.split_whitespace().next().unwrap().into())).collect()
}

/// Returns whether a filter selects a function of a file, as the test programs do: by a part of its path.
fn is_run(file: &Path, filter: &str) -> bool {
    let module = file.with_extension("");
    let parts = module.components().skip(2).map(|part| part.as_os_str().to_str().unwrap());
    let module: Vec<&str> = parts.filter(|part| !["mod", "main"].contains(part)).collect();
    let text = std::fs::read_to_string(file).unwrap();
    let functions = text.lines().filter_map(|line| line.trim_start_matches("async ").strip_prefix("fn "));
    let mut paths = functions.map(|rest| [&module[..], &[rest.split(['(', '<']).next().unwrap()]].concat().join("::"));
    paths.any(|path| path.contains(filter))
}

/// The files of a directory, and of those in it.
fn source_files(directory: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { source_files(path) } else { vec![path] }).collect()
}
