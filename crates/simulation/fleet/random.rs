//! Random numbers by a seed, and the distributions that the simulation draws from.

/// Generator of random numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(0x1234_5678_9abc_def1))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `most`, which is at least 1.
    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }

    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub fn one_in(&mut self, most: u64) -> bool {
        self.below(most) == 0
    }

    /// A number from 0 to 1.
    pub fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number with this mean, exponentially distributed.
    pub fn exponential(&mut self, mean: f64) -> u64 {
        (-(1.0 - self.part()).ln() * mean) as u64
    }
}

/// Numbers from 0 on, of which each is drawn in proportion to `1 / (number + 1)`.
pub struct Zipf(Vec<f64>);

impl Zipf {
    pub fn new(numbers: usize) -> Self {
        let mut sum = 0.0;
        Self(
            (1..=numbers)
                .map(|number| {
                    sum += 1.0 / number as f64;
                    sum
                })
                .collect(),
        )
    }

    pub fn draw(&self, random: &mut Random) -> usize {
        let at = random.part() * self.0.last().unwrap();
        self.0.partition_point(|sum| *sum <= at).min(self.0.len() - 1)
    }
}
