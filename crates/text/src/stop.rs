//! Ending a streamed text at the first stop string.

/// Passes text on until a stop string occurs, holding back what may be the beginning of one.
///
/// Law: however the text is cut, what is passed on is the text before the stop string that ends
/// first (of several that end together, the longest), and no character of it.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text that may be the beginning of a stop string.
    held: String,
    stopped: Option<usize>,
}

/// What may be shown of a streamed text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Passed {
    /// Text that belongs to no stop string.
    pub text: String,
    /// Which stop string was found, as an index. Everything after it is dropped.
    pub stopped: Option<usize>,
}

/// A stop string is empty, so it would end every text before it begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("stop string {index} is empty; leave it out")]
pub struct EmptyStop {
    /// Position in the list.
    pub index: usize,
}

impl StopStrings {
    /// Watches for any of `stops`; with none, all text passes at once.
    ///
    /// # Errors
    /// A stop string is empty.
    pub fn new(stops: Vec<String>) -> Result<Self, EmptyStop> {
        match stops.iter().position(String::is_empty) {
            Some(index) => Err(EmptyStop { index }),
            None => Ok(Self { stops, held: String::new(), stopped: None }),
        }
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, text: &str) -> Passed {
        if self.stopped.is_some() {
            return Passed { text: String::new(), stopped: self.stopped };
        }
        let seen = self.held.len();
        self.held.push_str(text);
        if let Some((start, stop)) = self.first_match(seen) {
            self.held.truncate(start);
            self.stopped = Some(stop);
            return Passed { text: std::mem::take(&mut self.held), stopped: self.stopped };
        }
        let rest = self.held.split_off(self.passable());
        Passed { text: std::mem::replace(&mut self.held, rest), stopped: None }
    }

    /// The text still held back when there is no more to come.
    pub fn finish(self) -> String {
        self.held
    }

    /// Where the first stop string that ends after `seen` bytes starts, and which it is.
    fn first_match(&self, seen: usize) -> Option<(usize, usize)> {
        let ends = self.held[seen..].char_indices().map(|(at, c)| seen + at + c.len_utf8());
        ends.into_iter().find_map(|end| {
            let ending = self.stops.iter().enumerate();
            let ending = ending.filter(|(_, stop)| self.held[..end].ends_with(stop.as_str()));
            let (index, longest) = ending.max_by_key(|(_, stop)| stop.len())?;
            Some((end - longest.len(), index))
        })
    }

    /// How many bytes of the held text cannot be part of a stop string.
    fn passable(&self) -> usize {
        let starts = self.held.char_indices().map(|(at, _)| at);
        let may_begin = |at: &usize| self.stops.iter().any(|s| s.starts_with(&self.held[*at..]));
        starts.into_iter().find(may_begin).unwrap_or(self.held.len())
    }
}
