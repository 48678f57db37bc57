//! What rows give alone.

use std::collections::HashMap;

use lapidary_cache::{Cache, Extent};
use lapidary_core::{Batch, KvCache, KvKernels, Regime, SlotId, SpanSpec, Want};
use lapidary_model::{NoHooks, run_with};

use super::story::rows_of;
use super::{Piece, RowOutput, Stage};

const SLOT: SlotId = SlotId(0);

/// Tells stories one piece per step in one slot, and remembers.
///
/// Its cache never reuses a cell, so going back to where two stories part needs no ring.
pub struct Solo<'a, B: KvKernels> {
    stage: &'a Stage<B>,
    cache: Cache<B>,
    told: Vec<Piece>,
    known: HashMap<Vec<Piece>, Vec<RowOutput>>,
}

impl<'a, B: KvKernels> Solo<'a, B> {
    /// For stories of up to `context` rows.
    pub fn new(stage: &'a Stage<B>, context: u32, regime: Regime) -> Self {
        let cache = stage.cache(Extent { slots: 1, context, burst: context }, regime);
        Self { stage, cache, told: Vec::new(), known: HashMap::new() }
    }

    /// What the rows of the story's last piece give.
    ///
    /// # Panics
    /// If the story is empty or does not fit.
    pub fn last_piece(&mut self, story: &[Piece]) -> &[RowOutput] {
        if !self.known.contains_key(story) {
            self.tell(story);
        }
        &self.known[story]
    }

    /// Pieces told and remembered.
    pub fn pieces(&self) -> usize {
        self.known.len()
    }

    fn tell(&mut self, story: &[Piece]) {
        let common = self.told.iter().zip(story).take_while(|(a, b)| a == b).count();
        let kept = rows_of(&story[..common]) as u32;
        assert!(self.cache.truncate(SLOT, kept), "a cache without rings goes back anywhere");
        self.told.truncate(common);
        for i in common..story.len() {
            let outputs = self.tell_piece(story[i]);
            self.told.push(story[i]);
            self.known.insert(story[..=i].to_vec(), outputs);
        }
    }

    fn tell_piece(&mut self, piece: Piece) -> Vec<RowOutput> {
        let base = self.cache.committed(SLOT);
        let mut rows = piece.specs(base);
        rows.iter_mut().for_each(|row| row.want = Want::BOTH);
        let blocks = match piece {
            Piece::Token(_) => Vec::new(),
            Piece::Image { .. } => std::iter::once(0..rows.len()).collect(),
        };
        let all: Vec<_> = (0..rows.len()).collect();
        let span = SpanSpec { rows, parents: Vec::new(), blocks };
        let batch = Batch::builder().span(SLOT, base, span).expect("a piece has rows").build();
        let Stage { ops, model, soft } = self.stage;
        let out = run_with(ops, model, &mut self.cache, &batch, soft, &mut NoHooks);
        let out = out.unwrap_or_else(|e| panic!("{e}"));
        self.cache.commit(ops, SLOT, &all);
        let both = out.hidden.into_iter().zip(out.logits);
        both.map(|((_, hidden), (_, logits))| RowOutput { hidden, logits }).collect()
    }
}
