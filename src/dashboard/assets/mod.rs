//! What the pages are dressed in: one style sheet, one script, one picture. They are part of the binary.

/// A file that pages refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    /// Its name, below `assets/`.
    pub name: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// Its content.
    pub content: &'static str,
}

/// All of them.
pub const ASSETS: [Asset; 3] = [
    Asset { name: "keygate.css", media_type: "text/css; charset=utf-8", content: include_str!("keygate.css") },
    Asset { name: "keygate.js", media_type: "text/javascript; charset=utf-8", content: include_str!("keygate.js") },
    Asset { name: "icon.svg", media_type: "image/svg+xml", content: include_str!("icon.svg") },
];

impl Asset {
    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        ASSETS.into_iter().find(|asset| asset.name == name)
    }
}
