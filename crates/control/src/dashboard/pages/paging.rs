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

/// Links to other pages of a list. Lists are read from their beginning on, so there is none to the page before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paging {
    /// Address of the first page; `None` on the first page.
    pub first: Option<String>,
    /// Address of the next page; `None` on the last page.
    pub next: Option<String>,
}

impl Paging {
    /// The links of the page that `cursor` begins, followed by the one that `next` begins. `href` returns the address
    /// of a page; that of the first page has an empty cursor.
    pub fn new(cursor: Option<&str>, next: Option<&str>, href: impl Fn(&str) -> String) -> Self {
        Self { first: cursor.map(|_| href("")), next: next.map(href) }
    }

    /// Returns `true` if the list has other pages.
    pub fn has_others(&self) -> bool {
        self.first.is_some() || self.next.is_some()
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
    fn paging_links_to_the_first_and_the_next_page() {
        let paging = |cursor, next| Paging::new(cursor, next, |cursor| link("/keys", &[("cursor", cursor)]));
        assert!(!paging(None, None).has_others());
        let first = paging(None, Some("a"));
        assert_eq!((first.first, first.next), (None, Some("/keys?cursor=a".into())));
        let last = paging(Some("b"), None);
        assert_eq!((last.first, last.next), (Some("/keys".into()), None));
    }
}
