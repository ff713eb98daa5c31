//! The dashboard: *Organization Settings > API Keys*, for people.

// What people see.
pub mod pages;
pub mod assets;
