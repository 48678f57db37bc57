//! Histories of a cache: steps, commits and rollbacks, each checked against plain lists.

use std::ops::Range;

use lapidary_cache::{Cache, Extent};
use lapidary_core::{
    Batch, Input, KvCache, KvLayerSpec, LayerId, Qkv, Reach, Regime, RowSpec, SlotId, Span,
    SpanSpec, TokenId, Want,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::ledger::{Label, Ledger};

/// What happens to one slot in a step. Numbers are taken modulo what there is room for.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// `rows` more rows, of which `accepted` are right guesses.
    Chain { rows: usize, accepted: usize },
    /// A draft tree; the accepted path ends at `node`, or is empty.
    Tree { parents: Vec<usize>, node: Option<usize> },
    /// Rows with two-way blocks of these lengths, each followed by one plain row.
    Blocks { lengths: Vec<usize> },
}

/// One thing that happens to a cache.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// One step over several slots. What is `planned` only is never run.
    Step { spans: Vec<(u32, Shape)>, planned: bool },
    /// The slot is cut back to this many entries.
    Truncate { slot: u32, len: usize },
    /// The slot is emptied.
    Clear { slot: u32 },
}

/// The layers and the size of a cache.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) extent: Extent,
    pub(crate) layers: Vec<KvLayerSpec>,
    /// Whether the last layer reads the first one's entries.
    pub(crate) shared: bool,
}

/// One slot as the oracle knows it.
#[derive(Clone, Default)]
struct Tale {
    /// The label at each position, oldest first.
    entries: Vec<Label>,
    /// Per layer, what its cells hold: the oracle's only use is to say what a ring has lost.
    rings: Vec<Vec<Label>>,
}

/// A cache and its oracle.
pub(crate) struct World {
    ops: Ledger,
    setting: Setting,
    pub(crate) cache: Cache<Ledger>,
    tales: Vec<Tale>,
    next: Label,
}

pub(crate) fn layer(reach: Reach, two_way: bool) -> KvLayerSpec {
    KvLayerSpec { heads: 1, width: 16, reach, two_way }
}

/// Cells of a layer, said again on purpose: the ring law.
fn cells(reach: Reach, extent: &Extent) -> usize {
    let context = extent.context as usize;
    match reach {
        Reach::All => context,
        Reach::Window(window) => context.min(window as usize + extent.burst as usize - 1),
    }
}

impl World {
    /// An empty cache on a device that keeps `withheld` cells of every ring to itself.
    pub(crate) fn new(setting: &Setting, withheld: usize) -> Self {
        let ops = Ledger { withheld };
        let Setting { extent, layers, shared } = setting;
        let owned = layers.len() - usize::from(*shared);
        let owns = |layer: LayerId| layer.index() < owned;
        let cache = Cache::new(&ops, layers.clone(), *extent, owns, |_| Regime::F32);
        let rings: Vec<_> = layers.iter().map(|spec| vec![0; cells(spec.reach, extent)]).collect();
        let tale = Tale { entries: Vec::new(), rings };
        Self {
            ops,
            setting: setting.clone(),
            cache: cache.expect("every setting has cells"),
            tales: vec![tale; extent.slots],
            next: 1,
        }
    }

    /// Lets something happen and compares all that can be seen of it.
    pub(crate) fn live(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Step { spans, planned } => self.step(spans, *planned),
            Event::Truncate { slot, len } => {
                let slot = self.slot(*slot);
                let len = len % (self.tales[slot.index()].entries.len() + 3);
                self.truncate(slot, len as u32)
            }
            Event::Clear { slot } => {
                let slot = self.slot(*slot);
                self.cache.clear(slot);
                self.tales[slot.index()].entries.clear();
                self.check_committed()
            }
        }
    }

    fn slot(&self, number: u32) -> SlotId {
        SlotId(number % self.tales.len() as u32)
    }

    /// Rows that a step may still bring to a slot.
    fn room(&self, slot: SlotId) -> usize {
        let left = self.setting.extent.context as usize - self.tales[slot.index()].entries.len();
        left.min(self.setting.extent.burst as usize)
    }

    fn step(&mut self, spans: &[(u32, Shape)], planned: bool) -> Result<(), String> {
        let mut builder = Batch::builder();
        let mut accepted: Vec<(SlotId, Vec<usize>)> = Vec::new();
        for (slot, shape) in spans {
            let slot = self.slot(*slot);
            let room = self.room(slot);
            if room == 0 || accepted.iter().any(|(taken, _)| *taken == slot) {
                continue;
            }
            let base = self.tales[slot.index()].entries.len() as u32;
            let (spec, path) = spec(shape, room);
            builder = builder.span(slot, base, spec).expect("shapes are well formed");
            accepted.push((slot, path));
        }
        let batch = builder.build();
        let plan = self.cache.plan(&self.ops, &batch).map_err(|full| full.to_string())?;
        if planned {
            return self.check_committed();
        }
        self.attend(&batch, &plan)?;
        for (slot, path) in accepted {
            self.commit(slot, &path);
        }
        self.check_committed()
    }

    /// Stores and attends every layer, and compares what each row sees.
    fn attend(
        &mut self,
        batch: &Batch,
        plan: &lapidary_core::KvPlan<Ledger>,
    ) -> Result<(), String> {
        let labels: Vec<Label> = (self.next..).take(batch.rows().len()).collect();
        self.next += labels.len() as Label;
        let fresh = || labels.iter().map(|&label| vec![(0, label)]).collect::<Vec<_>>();
        for (i, spec) in self.setting.layers.clone().into_iter().enumerate() {
            let id = LayerId(i as u32);
            let shared = self.setting.shared && i + 1 == self.setting.layers.len();
            let seen = if shared {
                self.cache.attend_shared(&self.ops, plan, LayerId(0), fresh())
            } else {
                let qkv = Qkv { q: fresh(), k: fresh(), v: fresh() };
                self.cache.attend(&self.ops, plan, id, qkv)
            };
            let spec = if shared { self.setting.layers[0] } else { spec };
            for span in batch.spans() {
                for offset in 0..span.len {
                    let expected = self.visible(span, offset, &labels, spec);
                    let row = span.first + offset;
                    if seen[row] != expected {
                        let seen = &seen[row];
                        return Err(format!(
                            "layer {i} ({spec:?}), row {offset} of {span:?} sees {seen:?}, \
                             not {expected:?}"
                        ));
                    }
                }
            }
        }
        for span in batch.spans() {
            let rows = &labels[span.first..span.first + span.len];
            self.tales[span.slot.index()].write(span.base as usize, rows);
        }
        Ok(())
    }

    /// What a row should see: its story from the first word on, cut to the layer's reach.
    fn visible(
        &self,
        span: &Span,
        offset: usize,
        labels: &[Label],
        spec: KvLayerSpec,
    ) -> Vec<(u32, Label)> {
        let own = |offset: usize| labels[span.first + offset];
        let mut story = self.tales[span.slot.index()].entries.clone();
        let path = path_to(span, offset);
        story.extend(path.iter().map(|&offset| own(offset)));
        let pos = story.len() - 1;
        let block = span.blocks.iter().find(|block| block.contains(&offset));
        if let (true, Some(block)) = (spec.two_way, block) {
            story.extend((offset + 1..block.end).map(own));
        }
        let first = match spec.reach {
            Reach::All => 0,
            Reach::Window(window) => (pos + 1).saturating_sub(window as usize),
        };
        (0..).zip(story).skip(first).collect()
    }

    fn commit(&mut self, slot: SlotId, path: &[usize]) {
        self.cache.commit(&self.ops, slot, path);
        let tale = &mut self.tales[slot.index()];
        let base = tale.entries.len();
        for (to, &from) in path.iter().enumerate() {
            tale.entries.push(tale.written(base + from));
            tale.write(base + to, &[tale.entries[base + to]]);
        }
    }

    /// Cuts a slot back. The cache must agree exactly if the rings still hold what is needed.
    pub(crate) fn truncate(&mut self, slot: SlotId, len: u32) -> Result<(), String> {
        let tale = &self.tales[slot.index()];
        let there = tale.entries.len();
        let possible = len as usize <= there
            && (len as usize == there || tale.holds(len as usize, &self.setting));
        let done = self.cache.truncate(slot, len);
        if done != possible {
            return Err(format!("truncate of {there} entries to {len}: {done}, not {possible}"));
        }
        if done {
            self.tales[slot.index()].entries.truncate(len as usize);
        }
        self.check_committed()
    }

    fn check_committed(&self) -> Result<(), String> {
        for (slot, tale) in (0..).map(SlotId).zip(&self.tales) {
            let (ours, entries) = (self.cache.committed(slot), tale.entries.len());
            if ours as usize != entries {
                return Err(format!("{slot:?} has {ours} entries, not {entries}"));
            }
        }
        Ok(())
    }
}

impl Tale {
    fn write(&mut self, first: usize, labels: &[Label]) {
        for ring in &mut self.rings {
            for (entry, &label) in (first..).zip(labels) {
                let cell = entry % ring.len();
                ring[cell] = label;
            }
        }
    }

    /// The label that was last written as this entry. The widest ring has it still.
    fn written(&self, entry: usize) -> Label {
        let widest = self.rings.iter().max_by_key(|ring| ring.len()).expect("there are layers");
        widest[entry % widest.len()]
    }

    /// Whether every layer's cells hold all entries that a row at position `len` sees before
    /// itself.
    fn holds(&self, len: usize, setting: &Setting) -> bool {
        setting.layers.iter().zip(&self.rings).all(|(spec, ring)| {
            let first = match spec.reach {
                Reach::All => 0,
                Reach::Window(window) => (len + 1).saturating_sub(window as usize),
            };
            (first..len).all(|entry| ring[entry % ring.len()] == self.entries[entry])
        })
    }
}

/// Offsets from the root to a row, by following parents one by one.
fn path_to(span: &Span, offset: usize) -> Vec<usize> {
    let mut path = vec![offset];
    let mut at = offset;
    loop {
        let parent = match span.parents.get(at) {
            Some(parent) => *parent,
            None => at.checked_sub(1),
        };
        let Some(parent) = parent else { break };
        path.insert(0, parent);
        at = parent;
    }
    path
}

/// A span of at most `room` rows, and the offsets that will be accepted.
fn spec(shape: &Shape, room: usize) -> (SpanSpec, Vec<usize>) {
    let row = RowSpec { input: Input::Token(TokenId(0)), angle: [0; 3], want: Want::NOTHING };
    match shape {
        Shape::Chain { rows, accepted } => {
            let len = rows % room + 1;
            let spec = SpanSpec { rows: vec![row; len], ..SpanSpec::default() };
            (spec, (0..accepted % (len + 1)).collect())
        }
        Shape::Tree { parents, node } => {
            let len = parents.len().min(room);
            let parents: Vec<_> = (0..len).map(|i| (parents[i] % (i + 1)).checked_sub(1)).collect();
            let last = node.map(|node| node % len);
            let mut path: Vec<_> = std::iter::successors(last, |&at| parents[at]).collect();
            path.reverse();
            (SpanSpec { rows: vec![row; len], parents, blocks: Vec::new() }, path)
        }
        Shape::Blocks { lengths } => {
            let mut blocks: Vec<Range<usize>> = Vec::new();
            let mut end = 0;
            for length in lengths {
                let block = end..end + length;
                end = block.end + 1;
                if block.end <= room {
                    blocks.push(block);
                }
            }
            let len = end.min(room);
            (SpanSpec { rows: vec![row; len], parents: Vec::new(), blocks }, (0..len).collect())
        }
    }
}

pub(crate) fn any_setting() -> impl Strategy<Value = Setting> {
    let reach = prop_oneof![
        1 => Just(Reach::All),
        3 => (1..9_u32).prop_map(Reach::Window),
    ];
    let layer = (reach, any::<bool>()).prop_map(|(reach, two_way)| layer(reach, two_way));
    let extent = (1..4_usize, 20..48_u32, 1..11_u32);
    (extent, vec(layer, 2..6), any::<bool>()).prop_map(
        |((slots, context, burst), layers, shared)| Setting {
            extent: Extent { slots, context, burst },
            layers,
            shared,
        },
    )
}

pub(crate) fn any_events() -> impl Strategy<Value = Vec<Event>> {
    let chain = (0..64_usize, 0..64_usize);
    let shape = prop_oneof![
        3 => (0..64_usize).prop_map(|rows| Shape::Chain { rows, accepted: rows % 11 + 1 }),
        3 => chain.prop_map(|(rows, accepted)| Shape::Chain { rows, accepted }),
        3 => (vec(0..16_usize, 1..12), proptest::option::of(0..12_usize))
            .prop_map(|(parents, node)| Shape::Tree { parents, node }),
        2 => vec(1..6_usize, 1..4).prop_map(|lengths| Shape::Blocks { lengths }),
    ];
    let spans = vec((0..4_u32, shape), 1..4);
    let event = prop_oneof![
        12 => spans.clone().prop_map(|spans| Event::Step { spans, planned: false }),
        1 => spans.prop_map(|spans| Event::Step { spans, planned: true }),
        3 => (0..4_u32, 0..64_usize).prop_map(|(slot, len)| Event::Truncate { slot, len }),
        1 => (0..4_u32).prop_map(|slot| Event::Clear { slot }),
    ];
    vec(event, 1..40)
}
