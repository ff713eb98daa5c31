//! What the pages are dressed in: one style sheet, one script, one picture. They are part of the binary.

/// A file that pages refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asset {
    /// Its name, below `assets/`.
    pub(super) name: &'static str,
    /// Its media type.
    pub(super) media_type: &'static str,
    /// Its content.
    pub(super) content: &'static str,
}

/// All of them.
const ASSETS: [Asset; 3] = [
    Asset { name: "keygate.css", media_type: "text/css; charset=utf-8", content: include_str!("keygate.css") },
    Asset { name: "keygate.js", media_type: "text/javascript; charset=utf-8", content: include_str!("keygate.js") },
    Asset { name: "icon.svg", media_type: "image/svg+xml", content: include_str!("icon.svg") },
];

impl Asset {
    /// The one of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        ASSETS.into_iter().find(|asset| asset.name == name)
    }
}
