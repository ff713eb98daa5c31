//! Suggestion for a misspelled key or name: the known one with the smallest edit distance.

/// The known name that a misspelled one was probably meant to be: at most a third of it differs.
pub(super) fn find_nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name = name.to_lowercase().replace('-', "_");
    let candidates = known.iter().map(|candidate| (edit_distance(&name, candidate), *candidate));
    candidates.min().filter(|(distance, candidate)| *distance <= candidate.len().div_ceil(3)).map(|(_, near)| near)
}

/// The Levenshtein distance of two words: insertions, deletions and substitutions.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestion_is_made_only_for_near_names() {
        let known = ["requests", "per", "burst"];
        assert_eq!(find_nearest("request", &known), Some("requests"));
        assert_eq!(find_nearest("Burst", &known), Some("burst"));
        assert_eq!(find_nearest("interval", &known), None);
        assert_eq!(find_nearest("x", &[]), None);
    }
}
