//! Histories of a cache: steps, commits and rollbacks, each checked against plain lists.

use std::ops::Range;

use lapidary_cache::{Cache, Extent};
use lapidary_core::{
    Batch, Input, KvCache, KvLayerSpec, LayerId, Qkv, Reach, Regime, RowSpec, Section, SlotId,
    Span, SpanSpec, TokenId, Want,
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
    /// Another slot gets the first entries of one.
    Fork { from: u32, to: u32, len: usize },
    /// Entries are taken out, as a sequel to what was taken out before if that fits.
    Save { slot: u32, tome: usize, len: usize },
    /// A slot gets entries that were taken out, some `back` from their end.
    Restore { slot: u32, tome: usize, back: usize },
}

/// Entries that were taken out of a cache.
#[derive(Clone, Default)]
struct Tome {
    sections: Vec<Section>,
    /// What the oracle knows them to be.
    entries: Vec<Label>,
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
    pub(crate) ops: Ledger,
    setting: Setting,
    pub(crate) cache: Cache<Ledger>,
    tales: Vec<Tale>,
    tomes: Vec<Tome>,
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
            tomes: Vec::new(),
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
            Event::Fork { from, to, len } => {
                let (from, to) = (self.slot(*from), self.slot(*to));
                let len = len % (self.tales[from.index()].entries.len() + 3);
                self.fork(from, to, len)
            }
            Event::Save { slot, tome, len } => self.save(self.slot(*slot), *tome, *len),
            Event::Restore { slot, tome, back } => self.restore(self.slot(*slot), *tome, *back),
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
        let first = first_seen(spec.reach, pos);
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
        let possible = tale.can_go_on(len as usize, &self.setting);
        let done = self.cache.truncate(slot, len);
        if done != possible {
            return Err(format!("truncate of {there} entries to {len}: {done}, not {possible}"));
        }
        if done {
            self.tales[slot.index()].entries.truncate(len as usize);
        }
        self.check_committed()
    }

    fn fork(&mut self, from: SlotId, to: SlotId, len: usize) -> Result<(), String> {
        let tale = &self.tales[from.index()];
        let possible = from != to && tale.can_go_on(len, &self.setting);
        let entries = tale.entries.clone();
        let done = self.cache.fork(&self.ops, from, to, len as u32);
        if done != possible {
            return Err(format!("fork of {from:?} at {len}: {done}, not {possible}"));
        }
        if done {
            self.tales[to.index()].become_given(&entries[..len], &self.setting);
        }
        self.check_committed()
    }

    fn save(&mut self, slot: SlotId, tome: usize, len: usize) -> Result<(), String> {
        let tale = &self.tales[slot.index()];
        let begun = self.tomes.get(tome % (self.tomes.len() + 1)).cloned().unwrap_or_default();
        let fits = tale.entries.starts_with(&begun.entries);
        let mut tome = if fits { begun } else { Tome::default() };
        let (from, there) = (tome.entries.len(), tale.entries.len());
        let end = from + len % (there - from + 2);
        let possible = end > from && tale.can_go_on(end, &self.setting);
        let section = self.cache.save(&self.ops, slot, from as u32..end as u32);
        if section.is_some() != possible {
            return Err(format!("save of {from}..{end} of {there}: {section:?}"));
        }
        if let Some(section) = section {
            let floor = section.floor as usize;
            assert!((section.from, section.end) == (from as u32, end as u32) && floor <= end);
            tome.entries.extend(&tale.entries[from..end]);
            tome.sections.push(section);
            self.tomes.push(tome);
        }
        self.check_committed()
    }

    fn restore(&mut self, slot: SlotId, tome: usize, back: usize) -> Result<(), String> {
        if self.tomes.is_empty() {
            return Ok(());
        }
        let Tome { sections, entries } = &self.tomes[tome % self.tomes.len()];
        let path: Vec<_> = sections.iter().collect();
        let last = path[path.len() - 1];
        let len = (entries.len() - back % (entries.len() - last.from as usize + 1)) as u32;
        let done = self.cache.restore(&self.ops, slot, &path, len);
        if done != (len >= last.floor && len > 0) {
            return Err(format!("restore of {last:?} at {len}: {done}"));
        }
        if done {
            let entries = entries[..len as usize].to_vec();
            self.tales[slot.index()].become_given(&entries, &self.setting);
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

    /// Whether there are that many entries, and all that a row after them sees.
    fn can_go_on(&self, len: usize, setting: &Setting) -> bool {
        let there = self.entries.len();
        len == there || len < there && self.holds(len, setting)
    }

    /// Entries that come from elsewhere bring what the next row sees, and leave the other cells
    /// without meaning.
    fn become_given(&mut self, entries: &[Label], setting: &Setting) {
        self.entries = entries.to_vec();
        for (spec, ring) in setting.layers.iter().zip(&mut self.rings) {
            ring.fill(0);
            let first = first_seen(spec.reach, entries.len());
            for (entry, &label) in entries.iter().enumerate().skip(first) {
                let cell = entry % ring.len();
                ring[cell] = label;
            }
        }
    }

    /// Whether every layer's cells hold all entries that a row at position `len` sees before
    /// itself.
    fn holds(&self, len: usize, setting: &Setting) -> bool {
        setting.layers.iter().zip(&self.rings).all(|(spec, ring)| {
            let first = first_seen(spec.reach, len);
            (first..len).all(|entry| ring[entry % ring.len()] == self.entries[entry])
        })
    }
}

/// The oldest entry that a row at `pos` sees.
fn first_seen(reach: Reach, pos: usize) -> usize {
    match reach {
        Reach::All => 0,
        Reach::Window(window) => (pos + 1).saturating_sub(window as usize),
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
        2 => (0..4_u32, 0..4_u32, 0..64_usize)
            .prop_map(|(from, to, len)| Event::Fork { from, to, len }),
        3 => (0..4_u32, 0..9_usize, 0..64_usize)
            .prop_map(|(slot, tome, len)| Event::Save { slot, tome, len }),
        3 => (0..4_u32, 0..9_usize, 0..64_usize)
            .prop_map(|(slot, tome, back)| Event::Restore { slot, tome, back }),
    ];
    vec(event, 1..40)
}
