//! Addresses with queries, and the way from page to page.

use form_urlencoded::Serializer;

/// A path with a query of these names and values; empty values are left away.
pub fn link(path: &str, query: &[(&str, &str)]) -> String {
    let mut text = Serializer::new(String::new());
    text.extend_pairs(query.iter().filter(|(_, value)| !value.is_empty()));
    match text.finish() {
        query if query.is_empty() => path.into(),
        query => format!("{path}?{query}"),
    }
}

/// Where a page is among those of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paging {
    /// Which it is, from one.
    pub page: u64,
    /// How many there are, one at least.
    pub pages: u64,
    /// The address of the one before.
    pub previous: Option<String>,
    /// The address of the one after.
    pub next: Option<String>,
}

impl Paging {
    /// Page `page` of a list of `total` entries by `size`; `address` tells that of a page. A page beyond the last is
    /// the last.
    pub fn of(page: u64, total: u64, size: u64, address: impl Fn(u64) -> String) -> Self {
        let pages = total.div_ceil(size.max(1)).max(1);
        let page = page.clamp(1, pages);
        Self {
            page,
            pages,
            previous: (page > 1).then(|| address(page - 1)),
            next: (page < pages).then(|| address(page + 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_carry_any_text() {
        assert_eq!(link("/keys", &[]), "/keys");
        assert_eq!(link("/keys", &[("q", ""), ("page", "2")]), "/keys?page=2");
        assert_eq!(link("/keys", &[("q", "a&b=\"<é"), ("state", "x")]), "/keys?q=a%26b%3D%22%3C%C3%A9&state=x");
    }

    #[test]
    fn pages_begin_and_end() {
        let of = |page, total| Paging::of(page, total, 25, |page| page.to_string());
        let (previous, next) = (|page: Paging| page.previous, |page: Paging| page.next);
        assert_eq!((of(1, 0).page, of(1, 0).pages, next(of(1, 0))), (1, 1, None));
        assert_eq!((of(1, 60).pages, previous(of(1, 60)), next(of(1, 60))), (3, None, Some("2".into())));
        assert_eq!((previous(of(3, 60)), next(of(3, 60))), (Some("2".into()), None));
        assert_eq!((of(9, 60).page, of(0, 60).page, of(2, 50).pages), (3, 1, 2));
    }
}
