//! query-store: its store by contract and against a model, with both engines; its HTTP interface, its files, and the
//! running service; several of them over one PostgreSQL, outages, and the cost of a page.

mod support;

mod contract;
mod model;
mod pages;
mod cursors;
mod requests;
mod served;
mod files;
mod outages;
mod several;
mod several_killed;
mod sizes;
mod history;
