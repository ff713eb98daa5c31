//! Descriptors and memory of processes, from time to time.

/// Growth of a median that is noise: of descriptors, as many connections of attacks come and go; of memory, in bytes.
const DESCRIPTORS: u64 = 40;
const MEMORY: u64 = 16 << 20;

/// What was seen of one gateway.
#[derive(Default)]
struct Series {
    /// Part of the soak that was over, descriptors, and bytes of memory.
    seen: Vec<(f64, u64, u64)>,
}

/// What was seen of each gateway.
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
            let thirds = [0, 1, 2].map(|third| series.medians(third));
            let shown = thirds.map(|(descriptors, memory)| format!("{descriptors} files, {} MiB", memory >> 20));
            println!("gateway {number}, medians of each third: {}", shown.join("; "));
        }
    }

    /// Checks that the last third is as the one before it.
    pub fn check(&self) {
        for (number, series) in self.0.iter().enumerate() {
            let (before, last) = (series.medians(1), series.medians(2));
            assert!(last.0 <= before.0 + DESCRIPTORS, "descriptors of gateway {number}: {before:?}, then {last:?}");
            let most = before.1 + (before.1 / 10).max(MEMORY);
            assert!(last.1 <= most, "memory of gateway {number}: {before:?}, then {last:?}");
        }
    }
}

impl Series {
    /// Medians of descriptors and memory in a third of the soak.
    fn medians(&self, third: usize) -> (u64, u64) {
        let of_third = self.seen.iter().filter(|(part, ..)| (part * 3.0) as usize == third);
        let (descriptors, memory) = of_third.map(|(_, descriptors, memory)| (*descriptors, *memory)).unzip();
        (median(descriptors), median(memory))
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
