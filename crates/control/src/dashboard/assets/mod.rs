//! Assets of the pages: a style sheet, a script and an icon. They are part of the binary.

/// A file that pages refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asset {
    /// File name, below `assets/`.
    pub(super) name: &'static str,
    pub(super) media_type: &'static str,
    pub(super) content: &'static str,
}

const ASSETS: [Asset; 3] = [
    Asset { name: "keygate.css", media_type: "text/css; charset=utf-8", content: include_str!("keygate.css") },
    Asset { name: "keygate.js", media_type: "text/javascript; charset=utf-8", content: include_str!("keygate.js") },
    Asset { name: "icon.svg", media_type: "image/svg+xml", content: include_str!("icon.svg") },
];

impl Asset {
    /// The asset with this file name.
    pub(super) fn find(name: &str) -> Option<Self> {
        ASSETS.into_iter().find(|asset| asset.name == name)
    }
}
