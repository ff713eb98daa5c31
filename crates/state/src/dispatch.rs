//! The dispatch of look-ups over the two variants of the state.

/// Defines look-ups of [`super::State`]: each from the memory of the embedded state, or by a bounded read of the
/// directory on Redis, which `$redis` is then.
macro_rules! lookups {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $type:ty),*) -> $found:ty {
            $embedded:ident => $memory:expr,
            $redis:ident => $read:expr $(,)?
        }
    )*) => {
        impl State {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`Unavailable`]; the embedded state always answers.
            pub async fn $name(&self, $($argument: $type),*) -> Result<$found, Unavailable> {
                match self {
                    Self::Embedded($embedded) => Ok($memory),
                    Self::Redis(state) => {
                        let $redis = &state.transactions;
                        super::redis::read($read).await
                    }
                }
            }
        )*}
    };
}

/// Calls the same method of either variant.
macro_rules! either {
    ($self:ident, $state:ident => $call:expr) => {
        match $self {
            Self::Embedded($state) => $call,
            Self::Redis($state) => $call,
        }
    };
}

pub(super) use {either, lookups};
