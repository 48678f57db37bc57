//! Where sections of prefixes lie while no slot holds them.

use std::collections::HashMap;
use std::sync::Arc;

use lapidary_core::{Section, TokenId};

/// Names a section: a number made from all tokens up to its end.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SectionKey(pub u64);

impl SectionKey {
    /// The key of the section that ends after these tokens. Different prefixes may have the same
    /// key, if hardly ever; whoever uses it compares the tokens.
    pub fn of(tokens: &[TokenId]) -> Self {
        let mix = |hash: u64, token: &TokenId| {
            let mixed = (hash ^ u64::from(token.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            mixed ^ (mixed >> 29)
        };
        Self(tokens.iter().fold(tokens.len() as u64, mix))
    }
}

/// What is known about a section that lies on a shelf.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Label {
    /// Its name.
    pub key: SectionKey,
    /// The section that it continues; `None` if it begins a sequence.
    pub parent: Option<SectionKey>,
    /// The tokens whose entries it holds.
    pub tokens: Vec<TokenId>,
    /// The first of its entries.
    pub from: u32,
    /// The least length at which a sequence can go on from it.
    pub floor: u32,
    /// Bytes that it takes on the shelf.
    pub bytes: u64,
}

/// A place for sections. It may lose any of them at any time; then they are read again.
pub trait Shelf: Send {
    /// What lies there, the least recently used first.
    fn labels(&mut self) -> Vec<Label>;
    /// Takes a section in, and says whether it did.
    fn put(&mut self, label: &Label, section: Section) -> bool;
    /// A section as it was put there, if it can still be had.
    fn get(&mut self, key: SectionKey) -> Option<Arc<Section>>;
    /// Gives a section up.
    fn remove(&mut self, key: SectionKey);
}

/// Keeps sections in the host's memory.
#[derive(Debug, Default)]
pub struct HostShelf {
    sections: HashMap<SectionKey, Arc<Section>>,
}

impl Shelf for HostShelf {
    fn labels(&mut self) -> Vec<Label> {
        Vec::new()
    }

    fn put(&mut self, label: &Label, section: Section) -> bool {
        self.sections.insert(label.key, Arc::new(section));
        true
    }

    fn get(&mut self, key: SectionKey) -> Option<Arc<Section>> {
        self.sections.get(&key).cloned()
    }

    fn remove(&mut self, key: SectionKey) {
        self.sections.remove(&key);
    }
}
