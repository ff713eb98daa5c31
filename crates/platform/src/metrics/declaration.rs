//! Declaration of metrics: one entry for each, whose doc comment is the help text. `docs/monitoring.md` has
//! a row for each entry.
//!
//! ```text
//! /// Help text.
//! KIND "name" { labels } in BUCKETS => field("values of the labels"), …;
//! ```
//!
//! | kind | a field is |
//! |---|---|
//! | `counter`, `gauge`, `time_gauge` (a time with fractions of a second), `histogram` | the series with these values: counting is an atomic addition |
//! | `counters`, `gauges`, `histograms` | the family, for values that are known later |
//! | `set` | another declared set, by its type |

/// Type of a field.
macro_rules! metric_type {
    (counter $name:tt) => {
        prometheus::IntCounter
    };
    (counters $name:tt) => {
        prometheus::IntCounterVec
    };
    (gauge $name:tt) => {
        prometheus::IntGauge
    };
    (gauges $name:tt) => {
        prometheus::IntGaugeVec
    };
    (time_gauge $name:tt) => {
        prometheus::Gauge
    };
    (histogram $name:tt) => {
        prometheus::Histogram
    };
    (histograms $name:tt) => {
        prometheus::HistogramVec
    };
    (set $set:tt) => {
        $set
    };
}

/// Registers the family of an entry. One without labels has one series.
macro_rules! metric_family {
    (set $set:tt $registry:ident $help:literal [] []) => { <$set>::register($registry) };
    (histogram $name:tt $registry:ident $help:literal [$($label:ident)*] [$buckets:expr]) => {
        crate::metrics::registration::histograms($registry, $name, $help, &[$(stringify!($label)),*], $buckets)
    };
    (histograms $($rest:tt)*) => { metric_family!(histogram $($rest)*) };
    (counters $($rest:tt)*) => { metric_family!(counter $($rest)*) };
    (gauges $($rest:tt)*) => { metric_family!(gauge $($rest)*) };
    ($kind:ident $name:tt $registry:ident $help:literal [$($label:ident)*] []) => {
        crate::metrics::registration::$kind($registry, $name, $help, &[$(stringify!($label)),*])
    };
}

/// The value of a field.
macro_rules! metric_field {
    (set $family:ident []) => { $family.clone() };
    (counters $family:ident []) => { $family.clone() };
    (gauges $family:ident []) => { $family.clone() };
    (histograms $family:ident []) => { $family.clone() };
    ($kind:ident $family:ident [$($value:literal)*]) => { $family.with_label_values(&[$($value),*] as &[&str]) };
}

/// Declares a set of metrics, and perhaps other fields of its type. `register` makes the set in a registry.
macro_rules! metrics {
    ($(#[$attribute:meta])* $visibility:vis struct $set:ident { $($entries:tt)* }) => {
        metrics! { $(#[$attribute])* $visibility struct $set(registry) { $($entries)* } with {} }
    };
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $set:ident($registry:ident) {$(
            #[doc = $help:literal]
            $kind:ident $name:tt $({ $($label:ident),+ })? $(in $buckets:expr)? => $(
                $(#[doc = $doc:literal])*
                $field_visibility:vis $field:ident $(($($value:literal),+))?
            ),+;
        )*} with {$(
            $(#[doc = $other_doc:literal])+
            $other_visibility:vis $other:ident: $other_type:ty = $other_value:expr;
        )*}
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug)]
        $visibility struct $set {
            $($(
                #[doc = $help]
                $(#[doc = ""] #[doc = $doc])*
                $field_visibility $field: metric_type!($kind $name),
            )+)*
            $($(#[doc = $other_doc])+ $other_visibility $other: $other_type,)*
        }

        impl $set {
            pub(super) fn register($registry: &prometheus::Registry) -> Self {
                $(
                    let family = metric_family!($kind $name $registry $help [$($($label)+)?] [$($buckets)?]);
                    $(let $field = metric_field!($kind family [$($($value)+)?]);)+
                )*
                $(let $other = $other_value;)*
                Self { $($($field,)+)* $($other,)* }
            }
        }
    };
}
