//! Descriptors and memory of processes, from time to time.
//!
//! Connections of attacks come and go: the lowest numbers of a time are those without them, and a leak raises these.

/// Growth that is noise, of descriptors, and of memory in bytes.
const DESCRIPTORS: u64 = 30;
const MEMORY: u64 = 16 << 20;

/// Sample of one gateway.
#[derive(Default)]
struct Series {
    /// Part of the soak that was over, descriptors, and bytes of memory.
    seen: Vec<(f64, u64, u64)>,
}

/// Samples of each gateway.
pub struct Samples(Vec<Series>);

impl Samples {
    pub fn new(gateways: usize) -> Self {
        Self((0..gateways).map(|_| Series::default()).collect())
    }

    /// Looks at the process of each gateway, when this part of the soak is over.
    pub fn look(&mut self, part: f64, processes: impl Iterator<Item = u32>) {
        for (series, process) in self.0.iter_mut().zip(processes) {
            let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).map_or(0, |files| files.count() as u64);
            let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kibibytes = memory.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
            series.seen.push((part, descriptors, kibibytes.unwrap_or(0) * 1024));
        }
    }

    pub fn print(&self) {
        for (number, series) in self.0.iter().enumerate() {
            let thirds = [0, 1, 2].map(|third| series.lowest(third));
            let shown = thirds.map(|(descriptors, memory)| format!("{descriptors} files, {} MiB", memory >> 20));
            println!("gateway {number}, lowest of each third: {}", shown.join("; "));
        }
    }

    /// Checks that the last third is as the one before it.
    pub fn check(&self) {
        for (number, series) in self.0.iter().enumerate() {
            let (before, last) = (series.lowest(1), series.lowest(2));
            assert!(last.0 <= before.0 + DESCRIPTORS, "descriptors of gateway {number}: {before:?}, then {last:?}");
            let most = before.1 + (before.1 / 10).max(MEMORY);
            assert!(last.1 <= most, "memory of gateway {number}: {before:?}, then {last:?}");
        }
    }
}

impl Series {
    /// The lowest numbers of descriptors, and of bytes of memory, in a third of the soak.
    fn lowest(&self, third: usize) -> (u64, u64) {
        let of_third = || self.seen.iter().filter(|(part, ..)| (part * 3.0) as usize == third);
        let descriptors = of_third().map(|(_, descriptors, _)| *descriptors).min();
        (descriptors.unwrap_or(0), of_third().map(|(.., memory)| *memory).min().unwrap_or(0))
    }
}
