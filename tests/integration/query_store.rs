//! query-store: its store by contract and against a model, its HTTP interface, its files, and the running service.

mod support;

mod contract;
mod model;
mod pages;
mod cursors;
mod requests;
mod served;
mod files;
