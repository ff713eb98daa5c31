//! Set of endpoints of one upstream, by their places in the list.

/// Set of endpoints. A look-up takes the same time however many it holds; an empty set has no memory of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointSet(Vec<u64>);

/// Endpoints at which one request was tried.
#[derive(Debug, Default)]
pub(crate) struct TriedEndpoints {
    pub(crate) set: EndpointSet,
    /// True if one of these was set aside: no other one that is set aside is tried.
    pub(crate) has_set_aside: bool,
}

impl EndpointSet {
    pub(crate) fn insert(&mut self, index: usize) {
        let word = index / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (index % 64);
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same with one more.
    pub(crate) fn with(&self, index: usize) -> Self {
        let mut set = self.clone();
        set.insert(index);
        set
    }
}

#[cfg(test)]
impl<const N: usize> From<[usize; N]> for EndpointSet {
    fn from(members: [usize; N]) -> Self {
        members.into_iter().fold(Self::default(), |set, index| set.with(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_set_has_what_was_inserted() {
        let set = EndpointSet::from([0, 63, 64, 300]);
        let members: Vec<_> = (0..1000).filter(|index| set.contains(*index)).collect();
        assert_eq!(members, [0, 63, 64, 300]);
        assert!(EndpointSet::default().is_empty() && !set.is_empty());
    }
}
