//! Guesses by a drafter that was trained for the target and reads the target's entries.

use lapidary_core::{Backend, Candidate, SlotId, TokenId};
use lapidary_model::assistant::Assistant;

use super::{Draft, DraftCall, DraftShape, Drafter, Target};

/// Drafts chains, or trees that keep the likeliest branches.
pub struct AssistantDrafter<B: Backend> {
    assistant: Assistant<B>,
}

/// One call's draft while it grows.
struct Growth {
    /// Which call.
    call: usize,
    slot: SlotId,
    room: usize,
    shape: DraftShape,
    nodes: Vec<(TokenId, Option<usize>)>,
    /// The branches that may go on.
    front: Vec<Branch>,
}

/// The end of a branch.
struct Branch {
    /// Its last guess, or nothing if it is the known text.
    node: Option<usize>,
    token: TokenId,
    /// The row among the states of the round before that it goes on from.
    state: usize,
    /// Sum of the logits' distances from the likeliest, from the root down: zero for the best.
    behind: f32,
}

impl<B: Backend> AssistantDrafter<B> {
    /// Keeps as many of the best guesses at each depth as each call's shape says.
    pub fn new(assistant: Assistant<B>) -> Self {
        Self { assistant }
    }

    /// Guesses one token further for all growing drafts at once, going on from `states`, and gives
    /// the states behind the guesses. `None` if the device failed.
    fn grow(
        &self,
        target: &mut Target<'_, B>,
        growing: &mut [&mut Growth],
        states: &B::Act,
    ) -> Option<B::Act> {
        let branches = || growing.iter().flat_map(|g| g.front.iter().map(move |b| (g.slot, b)));
        let slots: Vec<_> = branches().map(|(slot, _)| slot).collect();
        let tokens: Vec<_> = branches().map(|(_, branch)| branch.token).collect();
        let rows: Vec<_> = branches().map(|(_, branch)| branch.state).collect();
        let Target { ops, model, cache } = target;
        let states = ops.select(states, &rows);
        let guess = self.assistant.guess(*ops, *model, &mut **cache, &slots, &tokens, &states);
        let widest = growing.iter().map(|growth| growth.shape.width).max()?;
        let likeliest = ops.top(&guess.logits, slots.len(), widest).ok()?;
        let mut found = likeliest.into_iter().enumerate();
        for growth in growing {
            let branches = growth.front.len();
            growth.extend(found.by_ref().take(branches));
        }
        Some(guess.hidden)
    }
}

impl Growth {
    /// A draft that goes on from the given row of the target's states.
    fn of(call: usize, asked: &DraftCall<'_>, state: usize) -> Option<Self> {
        let root = Branch { node: None, token: *asked.known.last()?, state, behind: 0.0 };
        let DraftCall { slot, room, shape, .. } = *asked;
        Some(Self { call, slot, room, shape, nodes: Vec::new(), front: vec![root] })
    }

    /// Whether another guess could matter.
    fn goes_on(&self, depth: usize) -> bool {
        depth < self.shape.depth && self.nodes.len() < self.room && !self.front.is_empty()
    }

    /// Takes in the likeliest followers of each branch at the front, with the row of the state they
    /// come from, and keeps the best of all.
    fn extend(&mut self, found: impl Iterator<Item = (usize, Vec<Candidate>)>) {
        let mut next = Vec::new();
        for (branch, (state, followers)) in self.front.drain(..).zip(found) {
            let top = followers.first().map_or(0.0, |best| best.logit);
            next.extend(followers.into_iter().map(|Candidate { token, logit }| Branch {
                node: branch.node,
                token,
                state,
                behind: branch.behind + (top - logit),
            }));
        }
        // Stable: of equals, the earlier branch and the likelier token stay first.
        next.sort_by(|a, b| a.behind.total_cmp(&b.behind));
        next.truncate(self.shape.width.min(self.room - self.nodes.len()));
        for branch in &mut next {
            self.nodes.push((branch.token, branch.node));
            branch.node = Some(self.nodes.len() - 1);
        }
        self.front = next;
    }
}

impl<B: Backend> Drafter<B> for AssistantDrafter<B> {
    fn wants_hidden(&self) -> bool {
        true
    }

    fn propose(&mut self, mut target: Target<'_, B>, calls: &[DraftCall<'_>]) -> Vec<Draft> {
        let mut drafts = vec![Draft::default(); calls.len()];
        let (mut growths, mut hidden) = (Vec::new(), Vec::new());
        for (i, call) in calls.iter().enumerate() {
            let Some(state) = call.hidden else { continue };
            let Some(growth) = Growth::of(i, call, growths.len()) else { continue };
            growths.push(growth);
            hidden.extend_from_slice(state);
        }
        if growths.is_empty() {
            return drafts;
        }
        let mut states = target.ops.upload(&hidden, hidden.len() / growths.len());
        for depth in 0.. {
            let mut growing: Vec<_> = growths.iter_mut().filter(|g| g.goes_on(depth)).collect();
            if growing.is_empty() {
                break;
            }
            let Some(next) = self.grow(&mut target, &mut growing, &states) else { break };
            states = next;
        }
        for growth in growths {
            drafts[growth.call] = Draft::tree(growth.nodes);
        }
        drafts
    }
}
