//! Parsers of the files under `/proc` that the checks read.

/// Soft limit and number of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenFiles {
    /// Limit; none: no limit.
    pub(super) limit: Option<u64>,
    /// Open files; none when the directory may not be read.
    pub(super) open: Option<u64>,
}

/// Parses the soft limit of open files from `/proc/PID/limits`. `Some(None)` is no limit.
pub(super) fn parse_open_files_limit(limits: &str) -> Option<Option<u64>> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// Parses the start of a process from `/proc/PID/stat`, in clock ticks since the machine was started.
///
/// The second field is the name of the program in parentheses, which may hold spaces and parentheses itself.
pub(super) fn parse_start_ticks(stat: &str) -> Option<u64> {
    // The third field follows; the start is the 22nd.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Parses the start of the machine from `/proc/stat`, Unix time in seconds. It changes when the clock is set.
pub(super) fn parse_boot_time(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(parse_open_files_limit(limits), Some(Some(1024)));
        assert_eq!(parse_open_files_limit(&limits.replace("1024 ", "unlimited ")), Some(None));
        assert_eq!(parse_open_files_limit("Max cpu time unlimited"), None);
        let stat = "12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(parse_start_ticks(stat), Some(4711));
        assert_eq!(parse_start_ticks("12"), None);
        assert_eq!(parse_boot_time("cpu 1 2\nbtime 1795000000\n"), Some(1_795_000_000));
    }

    #[test]
    fn files_of_this_process_are_parsed() {
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        assert!(parse_open_files_limit(&read("/proc/self/limits")).is_some());
        assert!(parse_start_ticks(&read("/proc/self/stat")).is_some_and(|ticks| ticks > 0));
        assert!(parse_boot_time(&read("/proc/stat")).is_some_and(|time| time > 1_700_000_000));
    }
}
