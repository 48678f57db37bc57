//! Newtypes for the numbers that must not be mixed up.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A vocabulary entry.
    TokenId
}
id! {
    /// A cache region that holds one sequence. Unrelated to the sequence's row in a batch.
    SlotId
}
id! {
    /// A decoder layer, counted from the embedding.
    LayerId
}
id! {
    /// A matrix of soft tokens (the output of an image or audio tower) that a step brings along.
    SoftId
}
