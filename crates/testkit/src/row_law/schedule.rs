//! Random schedules: who brings which rows, in what company, and what is kept.

use std::collections::BTreeMap;

use lapidary_cache::{Cache, Extent};
use lapidary_core::{Batch, KvCache, KvKernels, Regime, RowSpec, Section, SlotId, SpanSpec, Want};
use lapidary_model::{NoHooks, run_with};

use super::story::{LONGEST_IMAGE, rows_of};
use super::{Piece, Solo, Stage, Stories, first_difference};
use crate::Rng;

const SLOTS: usize = 5;

/// How schedules are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Rows that a sequence may grow to.
    pub context: u32,
    /// Most rows of a span: at least an image.
    pub widest: u32,
    /// How the cache stores entries.
    pub regime: Regime,
    /// Steps of a schedule.
    pub steps: usize,
    /// Rows that every sequence reads before the steps begin, in spans as wide as possible.
    pub prompt: usize,
}

/// What schedules went through, to show that a run was worth something.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Rows that were compared.
    pub rows: usize,
    /// Batches of several sequences.
    pub mixes: usize,
    /// Spans of each width.
    pub widths: BTreeMap<usize, usize>,
    /// Draft trees, and those of which a path with a gap was kept.
    pub trees: (usize, usize),
    /// Drafts of which some rows were rejected.
    pub rejected: usize,
    /// Images.
    pub images: usize,
    /// Rollbacks, and rollbacks that the rings did not allow.
    pub cuts: (usize, usize),
    /// Moves to another slot, and moves that the rings did not allow.
    pub forks: (usize, usize),
    /// Sequences taken out of the cache, and sequences brought back.
    pub saves: (usize, usize),
}

impl Tally {
    /// Adds what other schedules went through.
    pub fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.mixes += other.mixes;
        self.rejected += other.rejected;
        self.images += other.images;
        self.trees = (self.trees.0 + other.trees.0, self.trees.1 + other.trees.1);
        self.cuts = (self.cuts.0 + other.cuts.0, self.cuts.1 + other.cuts.1);
        self.forks = (self.forks.0 + other.forks.0, self.forks.1 + other.forks.1);
        self.saves = (self.saves.0 + other.saves.0, self.saves.1 + other.saves.1);
        for (width, spans) in other.widths {
            *self.widths.entry(width).or_default() += spans;
        }
    }
}

/// A sequence of a schedule.
struct Sequence {
    slot: SlotId,
    trunk: usize,
    /// What is committed.
    story: Vec<Piece>,
}

/// A span to be: its rows, what each row's story is, and what will be kept.
struct Act {
    sequence: usize,
    spec: SpanSpec,
    /// For each row, the story that ends with its piece, and the row's place in that piece.
    stories: Vec<(Vec<Piece>, usize)>,
    /// Offsets to commit, and the pieces that they are.
    accepted: Vec<usize>,
    kept: Vec<Piece>,
}

struct Run<'a, B: KvKernels> {
    plan: Schedule,
    stage: &'a Stage<B>,
    stories: &'a Stories,
    rng: Rng,
    cache: Cache<B>,
    sequences: Vec<Sequence>,
    shelf: Vec<Shelved>,
}

/// A sequence outside the cache.
struct Shelved {
    sections: Vec<Section>,
    trunk: usize,
    story: Vec<Piece>,
}

impl Schedule {
    /// Runs the schedule that `seed` stands for and compares every row that wanted something.
    ///
    /// # Errors
    /// The first row that differs.
    ///
    /// # Panics
    /// If a step fails.
    pub fn run<B: KvKernels>(
        self,
        stage: &Stage<B>,
        solo: &mut Solo<'_, B>,
        stories: &Stories,
        seed: u64,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        rng.bits();
        // Half of the caches take the widest spans, half are tighter.
        let room = (self.widest - LONGEST_IMAGE) as usize;
        let spare = if rng.below(2) == 0 { room } else { rng.below(room + 1) };
        let burst = LONGEST_IMAGE + spare as u32;
        let extent = Extent { slots: SLOTS, context: self.context, burst };
        let mut slots: Vec<_> = (0..SLOTS as u32).map(SlotId).collect();
        rng.shuffle(&mut slots);
        slots.truncate(1 + rng.below(4));
        let start = |slot| Sequence { slot, trunk: 0, story: Vec::new() };
        let mut sequences: Vec<_> = slots.into_iter().map(start).collect();
        sequences.iter_mut().for_each(|s| s.trunk = rng.below(stories.count()));
        let cache = stage.cache(extent, self.regime);
        let mut run = Run { plan: self, stage, stories, rng, cache, sequences, shelf: Vec::new() };
        run.read_prompts(solo, tally)?;
        (0..self.steps).try_for_each(|step| {
            run.step(solo, tally).map_err(|e| format!("seed {seed}, step {step}, {extent:?}: {e}"))
        })
    }
}

impl<B: KvKernels> Run<'_, B> {
    fn read_prompts(&mut self, solo: &mut Solo<'_, B>, tally: &mut Tally) -> Result<(), String> {
        let burst = self.cache.extent().burst as usize;
        loop {
            let all = 0..self.sequences.len();
            let unread = |&i: &usize| rows_of(&self.sequences[i].story) < self.plan.prompt;
            let unread: Vec<_> = all.filter(unread).collect();
            if unread.is_empty() {
                return Ok(());
            }
            let acts = unread.into_iter().map(|i| self.chunk(i, burst)).collect();
            self.play(acts, solo, tally)?;
        }
    }

    fn step(&mut self, solo: &mut Solo<'_, B>, tally: &mut Tally) -> Result<(), String> {
        let mut order: Vec<_> = (0..self.sequences.len()).collect();
        self.rng.shuffle(&mut order);
        order.truncate(1 + self.rng.below(order.len()));
        let mut acts = Vec::new();
        for i in order {
            if self.rng.below(7) == 0 {
                self.cut(i, tally)?;
            }
            match self.rng.below(12) {
                0 => self.move_over(i, tally)?,
                1 => self.take_out(i, tally),
                2 => self.bring_back(i, tally)?,
                _ => {}
            }
            if self.room(i) < LONGEST_IMAGE as usize || self.rng.below(40) == 0 {
                self.begin_again(i);
            }
            acts.push(match self.rng.below(10) {
                0..=2 => self.chunk(i, 1),
                3..=5 => {
                    let rows = 1 + self.rng.below(self.plan.widest as usize);
                    self.chunk(i, rows)
                }
                6..=7 => self.draft(i),
                _ => self.tree(i),
            });
        }
        self.play(acts, solo, tally)
    }

    /// Rows that a step may bring to a sequence.
    fn room(&self, i: usize) -> usize {
        let Extent { context, burst, .. } = self.cache.extent();
        (burst as usize).min(context as usize - rows_of(&self.sequences[i].story))
    }

    fn begin_again(&mut self, i: usize) {
        let trunk = self.rng.below(self.stories.count());
        let sequence = &mut self.sequences[i];
        self.cache.clear(sequence.slot);
        (sequence.trunk, sequence.story) = (trunk, Vec::new());
    }

    /// Goes back by a few pieces, if the rings allow it.
    fn cut(&mut self, i: usize, tally: &mut Tally) -> Result<(), String> {
        let back = self.rng.below(30);
        let sequence = &mut self.sequences[i];
        let pieces = sequence.story.len().saturating_sub(back);
        let rows = rows_of(&sequence.story[..pieces]) as u32;
        let before = self.cache.committed(sequence.slot);
        let done = self.cache.truncate(sequence.slot, rows);
        if done {
            sequence.story.truncate(pieces);
            tally.cuts.0 += 1;
        } else {
            tally.cuts.1 += 1;
        }
        let expected = if done { rows } else { before };
        let committed = self.cache.committed(sequence.slot);
        (committed == expected).then_some(()).ok_or_else(|| {
            format!("after a cut of {before} to {rows} ({done}), {committed} entries are left")
        })
    }

    /// Goes on in another slot, perhaps from a few pieces back, if the rings allow it.
    fn move_over(&mut self, i: usize, tally: &mut Tally) -> Result<(), String> {
        let back = self.rng.below(12);
        let taken: Vec<_> = self.sequences.iter().map(|sequence| sequence.slot).collect();
        let spare = (0..SLOTS as u32).map(SlotId).find(|slot| !taken.contains(slot));
        let spare = spare.expect("there are fewer sequences than slots");
        let sequence = &mut self.sequences[i];
        let pieces = sequence.story.len().saturating_sub(back);
        let rows = rows_of(&sequence.story[..pieces]) as u32;
        if !self.cache.fork(&self.stage.ops, sequence.slot, spare, rows) {
            tally.forks.1 += 1;
            return Ok(());
        }
        tally.forks.0 += 1;
        (sequence.slot, _) = (spare, sequence.story.truncate(pieces));
        let committed = self.cache.committed(spare);
        let right = committed == rows;
        right.then_some(()).ok_or_else(|| format!("a fork at {rows} has {committed} entries"))
    }

    /// Takes a sequence out of the cache, in two sections if the rings allow it.
    fn take_out(&mut self, i: usize, tally: &mut Tally) {
        let Sequence { slot, trunk, ref story } = self.sequences[i];
        let end = rows_of(story) as u32;
        let middle = rows_of(&story[..self.rng.below(story.len() + 1)]) as u32;
        let save = |range| self.cache.save(&self.stage.ops, slot, range);
        let sections = match (save(0..middle), save(middle..end)) {
            (Some(first), Some(second)) => Some(vec![first, second]),
            _ => save(0..end).map(|whole| vec![whole]),
        };
        if let Some(sections) = sections {
            tally.saves.0 += 1;
            self.shelf.push(Shelved { sections, trunk, story: story.clone() });
        }
    }

    /// Puts a sequence that was taken out into another one's place.
    fn bring_back(&mut self, i: usize, tally: &mut Tally) -> Result<(), String> {
        if self.shelf.is_empty() {
            return Ok(());
        }
        let which = self.rng.below(self.shelf.len());
        let Shelved { sections, trunk, story } = &self.shelf[which];
        let path: Vec<_> = sections.iter().collect();
        let pieces = story.len() - self.rng.below(4).min(story.len() - 1);
        let rows = rows_of(&story[..pieces]) as u32;
        let slot = self.sequences[i].slot;
        let done = self.cache.restore(&self.stage.ops, slot, &path, rows);
        let last = path[path.len() - 1];
        if done != (last.floor <= rows) {
            return Err(format!("bringing back {}..{} at {rows}: {done}", last.from, last.end));
        }
        if done {
            tally.saves.1 += 1;
            self.sequences[i] = Sequence { slot, trunk: *trunk, story: story[..pieces].to_vec() };
        }
        Ok(())
    }

    /// The story's next pieces, up to `rows` rows but at least one piece; all are kept.
    fn chunk(&mut self, i: usize, rows: usize) -> Act {
        let rows = rows.min(self.room(i));
        let Sequence { trunk, story, .. } = &self.sequences[i];
        let mut pieces: Vec<Piece> = Vec::new();
        loop {
            let next = self.stories.piece(*trunk, story.len() + pieces.len());
            if !pieces.is_empty() && rows_of(&pieces) + next.rows() > rows {
                break;
            }
            pieces.push(next);
        }
        let kept = pieces.len();
        self.chain(i, &pieces, kept)
    }

    /// The next token and guesses after it, of which only the first few are kept.
    fn draft(&mut self, i: usize) -> Act {
        let rows = 1 + self.rng.below(self.room(i).min(9));
        let right = self.rng.below(rows + 1);
        let pieces: Vec<_> =
            (0..rows).map(|offset| self.guess(i, offset, offset < right)).collect();
        self.chain(i, &pieces, right)
    }

    /// A token that goes `offset` after the story: the story's own, or any.
    fn guess(&mut self, i: usize, offset: usize, right: bool) -> Piece {
        let Sequence { trunk, story, .. } = &self.sequences[i];
        match self.stories.piece(*trunk, story.len() + offset) {
            Piece::Token(id) if right => Piece::Token(id),
            _ => self.stories.token(&mut self.rng),
        }
    }

    fn chain(&self, i: usize, pieces: &[Piece], kept: usize) -> Act {
        let mut story = self.sequences[i].story.clone();
        let mut act = Act {
            sequence: i,
            spec: SpanSpec::default(),
            stories: Vec::new(),
            accepted: (0..rows_of(&pieces[..kept])).collect(),
            kept: pieces[..kept].to_vec(),
        };
        for piece in pieces {
            let (pos, first) = (rows_of(&story), act.spec.rows.len());
            story.push(*piece);
            act.spec.rows.extend(piece.specs(pos as u32));
            act.stories.extend((0..piece.rows()).map(|row| (story.clone(), row)));
            if let Piece::Image { .. } = piece {
                act.spec.blocks.push(first..first + piece.rows());
            }
        }
        act
    }

    /// A draft tree; a random path of it, or nothing, is kept.
    fn tree(&mut self, i: usize) -> Act {
        let nodes = 1 + self.rng.below(self.room(i).min(12));
        let base = rows_of(&self.sequences[i].story) as u32;
        let mut parents: Vec<Option<usize>> = Vec::new();
        let mut stories: Vec<(Vec<Piece>, usize)> = Vec::new();
        let mut rows: Vec<RowSpec> = Vec::new();
        for node in 0..nodes {
            // Mostly deep: the last node is the likeliest parent.
            let parent = match self.rng.below(4) {
                0 => self.rng.below(node + 1).checked_sub(1),
                _ => node.checked_sub(1),
            };
            let above = parent.map_or(&self.sequences[i].story, |p| &stories[p].0);
            let (mut story, depth) = (above.clone(), above.len() - self.sequences[i].story.len());
            let right = self.rng.below(3) > 0;
            let piece = self.guess(i, depth, right);
            story.push(piece);
            rows.extend(piece.specs(base + depth as u32));
            stories.push((story, 0));
            parents.push(parent);
        }
        let last = self.rng.below(nodes + 1).checked_sub(1);
        let mut accepted: Vec<_> = std::iter::successors(last, |&at| parents[at]).collect();
        accepted.reverse();
        let committed = self.sequences[i].story.len();
        let kept = last.map_or(Vec::new(), |at| stories[at].0[committed..].to_vec());
        let spec = SpanSpec { rows, parents, blocks: Vec::new() };
        Act { sequence: i, spec, stories, accepted, kept }
    }

    /// Runs the acts as one batch, compares its rows, and keeps what is to be kept.
    fn play(
        &mut self,
        mut acts: Vec<Act>,
        solo: &mut Solo<'_, B>,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let mut builder = Batch::builder();
        for act in &mut acts {
            for row in &mut act.spec.rows {
                let wants = [Want::NOTHING, Want::HIDDEN, Want::LOGITS, Want::BOTH, Want::BOTH];
                row.want = wants[self.rng.below(wants.len())];
            }
            note(act, tally);
            let slot = self.sequences[act.sequence].slot;
            let base = self.cache.committed(slot);
            builder = builder.span(slot, base, act.spec.clone()).expect("acts are well formed");
        }
        tally.mixes += usize::from(acts.len() > 1);
        let batch = builder.build();
        let Stage { ops, model, soft } = self.stage;
        let out = run_with(ops, model, &mut self.cache, &batch, soft, &mut NoHooks);
        let out = out.unwrap_or_else(|e| panic!("{e}"));

        let stories: Vec<_> = acts.iter().flat_map(|act| &act.stories).collect();
        let hidden = out.hidden.iter().map(|(row, x)| (*row, x, "hidden state"));
        for (row, ours, what) in hidden.chain(out.logits.iter().map(|(r, x)| (*r, x, "logits"))) {
            let (story, place) = stories[row];
            let alone = &solo.last_piece(story)[*place];
            let alone = if what == "logits" { &alone.logits } else { &alone.hidden };
            if let Some(difference) = first_difference(ours, alone) {
                let (row, rows) = (batch.rows()[row], batch.rows().len());
                return Err(format!("{what} of {row:?}, one of {rows}: {difference}"));
            }
            tally.rows += 1;
        }
        for act in acts {
            let sequence = &mut self.sequences[act.sequence];
            self.cache.commit(ops, sequence.slot, &act.accepted);
            sequence.story.extend(act.kept);
        }
        Ok(())
    }
}

fn note(act: &Act, tally: &mut Tally) {
    let SpanSpec { rows, parents, blocks } = &act.spec;
    *tally.widths.entry(rows.len()).or_default() += 1;
    tally.images += blocks.len();
    if parents.is_empty() {
        tally.rejected += usize::from(act.accepted.len() < rows.len());
    } else {
        let gap = act.accepted.iter().enumerate().any(|(to, &from)| to != from);
        tally.trees.0 += 1;
        tally.trees.1 += usize::from(gap);
    }
}
