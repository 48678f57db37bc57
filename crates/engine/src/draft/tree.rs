//! Guesses at what follows: a chain, or a tree whose branches are alternatives.

use lapidary_core::TokenId;

/// Guessed tokens, each after its parent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Draft {
    nodes: Vec<(TokenId, Option<usize>)>,
}

impl Draft {
    /// Each token after the one before it.
    pub fn chain(tokens: impl IntoIterator<Item = TokenId>) -> Self {
        let node = |(i, token): (usize, TokenId)| (token, i.checked_sub(1));
        Self { nodes: tokens.into_iter().enumerate().map(node).collect() }
    }

    /// `(token, parent)`, where no parent means the known text.
    ///
    /// # Panics
    /// If a node comes before its parent.
    pub fn tree(nodes: Vec<(TokenId, Option<usize>)>) -> Self {
        let placed = |(i, (_, parent)): (usize, &(TokenId, Option<usize>))| {
            parent.is_none_or(|parent| parent < i)
        };
        assert!(nodes.iter().enumerate().all(placed), "parents come before their children");
        Self { nodes }
    }

    /// How many guesses there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Guesses with their parents, parents first.
    pub fn nodes(&self) -> &[(TokenId, Option<usize>)] {
        &self.nodes
    }

    /// The first `len` guesses.
    pub(crate) fn first(&self, len: usize) -> Self {
        Self { nodes: self.nodes[..len].to_vec() }
    }

    /// Whether every guess follows the one before it.
    pub(crate) fn is_chain(&self) -> bool {
        self.nodes.iter().enumerate().all(|(i, (_, parent))| *parent == i.checked_sub(1))
    }

    /// The guess that `token` comes after `node`, or after the known text.
    pub(crate) fn child(&self, node: Option<usize>, token: TokenId) -> Option<usize> {
        self.nodes.iter().position(|&guess| guess == (token, node))
    }

    /// How many guesses there are at each depth, from the first on.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let mut widths = Vec::new();
        for (depth, rank) in self.places() {
            widths.resize(widths.len().max(depth + 1), 0);
            widths[depth] = rank + 1;
        }
        widths
    }

    /// The place of each of these guesses among those of its depth, drafters putting the best first.
    pub(crate) fn ranks(&self, guesses: impl Iterator<Item = usize>) -> Vec<usize> {
        let places = self.places();
        guesses.map(|guess| places[guess].1).collect()
    }

    /// Each guess's depth, from zero, and its place among those of that depth.
    fn places(&self) -> Vec<(usize, usize)> {
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(self.len());
        for (_, parent) in &self.nodes {
            let depth = parent.map_or(0, |parent| places[parent].0 + 1);
            let rank = places.iter().filter(|place| place.0 == depth).count();
            places.push((depth, rank));
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TokenId = TokenId(1);
    const B: TokenId = TokenId(2);

    #[test]
    fn a_chain_is_a_tree_of_one_branch() {
        let chain = Draft::chain([A, B, A]);
        assert_eq!(chain, Draft::tree(vec![(A, None), (B, Some(0)), (A, Some(1))]));
        assert!(chain.is_chain());
        assert_eq!(chain.widths(), [1, 1, 1]);
        assert_eq!((chain.child(None, A), chain.child(Some(0), B)), (Some(0), Some(1)));
        assert_eq!(chain.child(Some(0), A), None);
    }

    #[test]
    fn branches_are_found_by_parent_and_token() {
        let tree = Draft::tree(vec![(A, None), (B, None), (A, Some(1)), (A, Some(0))]);
        assert!(!tree.is_chain());
        assert_eq!(tree.widths(), [2, 2]);
        assert_eq!(tree.ranks([1, 2].into_iter()), [1, 0]);
        assert_eq!((tree.child(Some(0), A), tree.child(Some(1), A)), (Some(3), Some(2)));
        assert_eq!(tree.first(2).len(), 2);
        assert!(!tree.first(2).is_chain());
        assert!(Draft::default().widths().is_empty());
    }
}
