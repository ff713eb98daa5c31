//! Pages of a list, and addresses with queries.

use form_urlencoded::Serializer;

/// Appends a query of these names and values to a path. Empty values are left out.
pub fn link(path: &str, query: &[(&str, &str)]) -> String {
    let mut text = Serializer::new(String::new());
    text.extend_pairs(query.iter().filter(|(_, value)| !value.is_empty()));
    match text.finish() {
        query if query.is_empty() => path.into(),
        query => format!("{path}?{query}"),
    }
}

/// The position of a page in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paging {
    /// Number of the page, from 1.
    pub page: u64,
    /// Number of pages, at least 1.
    pub pages: u64,
    /// Address of the previous page.
    pub previous: Option<String>,
    /// Address of the next page.
    pub next: Option<String>,
}

impl Paging {
    /// Page `page` of a list of `total` entries, `size` on a page. A number beyond the last page is the last page;
    /// `href` returns the address of a page.
    pub fn new(page: u64, total: u64, size: u64, href: impl Fn(u64) -> String) -> Self {
        let pages = total.div_ceil(size.max(1)).max(1);
        let page = page.clamp(1, pages);
        Self { page, pages, previous: (page > 1).then(|| href(page - 1)), next: (page < pages).then(|| href(page + 1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_encode_any_text() {
        assert_eq!(link("/keys", &[]), "/keys");
        assert_eq!(link("/keys", &[("q", ""), ("page", "2")]), "/keys?page=2");
        assert_eq!(link("/keys", &[("q", "a&b=\"<é"), ("state", "x")]), "/keys?q=a%26b%3D%22%3C%C3%A9&state=x");
    }

    #[test]
    fn paging_has_no_page_before_the_first_or_after_the_last() {
        let paging = |page, total| Paging::new(page, total, 25, |page| page.to_string());
        let (previous, next) = (|page: Paging| page.previous, |page: Paging| page.next);
        assert_eq!((paging(1, 0).page, paging(1, 0).pages, next(paging(1, 0))), (1, 1, None));
        let first = paging(1, 60);
        assert_eq!((first.pages, previous(first.clone()), next(first)), (3, None, Some("2".into())));
        assert_eq!((previous(paging(3, 60)), next(paging(3, 60))), (Some("2".into()), None));
        assert_eq!((paging(9, 60).page, paging(0, 60).page, paging(2, 50).pages), (3, 1, 2));
    }
}
