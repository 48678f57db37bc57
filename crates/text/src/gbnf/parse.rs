//! Reading llama.cpp's grammars.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::BadGbnf;

/// Sequences of which one is taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Alternatives(pub(super) Vec<Vec<Item>>);

/// A part of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    /// These characters.
    Literal(String),
    /// One character, as a class of a regular expression.
    Class(String),
    /// What another rule describes.
    Name(String),
    /// Alternatives in parentheses.
    Group(Alternatives),
    /// Something several times.
    Repeated(Box<Self>, Repeat),
}

/// How often.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Repeat {
    pub(super) least: u32,
    pub(super) most: Option<u32>,
}

/// Deepest nesting of parentheses.
const DEEPEST: usize = 64;
/// Most repetitions; as in llama.cpp, beyond them a grammar is a mistake.
const MOST_REPEATS: u32 = 2000;

/// Reads rules; `root` is one of them, and every rule that is named exists.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, Alternatives>, BadGbnf> {
    let mut parser = Parser { rest: text, line: 1 };
    let mut rules = BTreeMap::new();
    let mut named = Vec::new();
    parser.blanks(Lines::Crossed);
    while !parser.rest.is_empty() {
        let line = parser.line;
        let (name, body) = parser.rule()?;
        body.for_each_name(&mut |name| named.push((name.to_owned(), line)));
        if rules.insert(name.clone(), body).is_some() {
            return Err(bad(line, format!("`{name}` is defined twice")));
        }
        parser.blanks(Lines::Crossed);
    }
    named.push(("root".to_owned(), 1));
    match named.into_iter().find(|(name, _)| !rules.contains_key(name)) {
        Some((name, line)) => Err(bad(line, format!("there is no rule `{name}`"))),
        None => Ok(rules),
    }
}

impl Alternatives {
    /// Every rule that is named, as often as it is.
    pub(super) fn for_each_name<'a>(&'a self, tell: &mut dyn FnMut(&'a str)) {
        self.0.iter().flatten().for_each(|item| item.for_each_name(tell));
    }
}

impl Item {
    /// Whether it names none of these rules.
    pub(super) fn is_regular(&self, loops: &BTreeSet<&str>) -> bool {
        let mut regular = true;
        self.for_each_name(&mut |name| regular &= !loops.contains(name));
        regular
    }

    fn for_each_name<'a>(&'a self, tell: &mut dyn FnMut(&'a str)) {
        match self {
            Self::Name(name) => tell(name),
            Self::Group(inner) => inner.for_each_name(tell),
            Self::Repeated(inner, _) => inner.for_each_name(tell),
            Self::Literal(_) | Self::Class(_) => {}
        }
    }
}

fn bad(line: usize, reason: impl Into<String>) -> BadGbnf {
    BadGbnf { line, reason: reason.into() }
}

struct Parser<'a> {
    rest: &'a str,
    line: usize,
}

/// Whether the end of a line ends what is read.
#[derive(Clone, Copy, PartialEq)]
enum Lines {
    Kept,
    Crossed,
}

impl Parser<'_> {
    fn rule(&mut self) -> Result<(String, Alternatives), BadGbnf> {
        let name = self.name()?;
        self.blanks(Lines::Kept);
        let Some(rest) = self.rest.strip_prefix("::=") else {
            return Err(self.bad(format!("`::=` is missing after `{name}`")));
        };
        self.rest = rest;
        self.blanks(Lines::Crossed);
        let body = self.alternatives(0)?;
        if !self.rest.is_empty() && !self.rest.starts_with(['\n', '\r']) {
            return Err(self.unexpected());
        }
        Ok((name, body))
    }

    fn alternatives(&mut self, depth: usize) -> Result<Alternatives, BadGbnf> {
        if depth > DEEPEST {
            return Err(self.bad(format!("more than {DEEPEST} parentheses are open")));
        }
        let lines = if depth > 0 { Lines::Crossed } else { Lines::Kept };
        let mut all = Vec::new();
        loop {
            let mut sequence = Vec::new();
            self.blanks(lines);
            while let Some(item) = self.item(depth)? {
                self.blanks(lines);
                let item = self.repeated(item)?;
                sequence.push(item);
                self.blanks(lines);
            }
            all.push(sequence);
            if !self.eat('|') {
                return Ok(Alternatives(all));
            }
            self.blanks(Lines::Crossed);
        }
    }

    fn item(&mut self, depth: usize) -> Result<Option<Item>, BadGbnf> {
        let item = match self.rest.chars().next() {
            Some('"') => self.literal()?,
            Some('[') => self.class()?,
            Some('.') => {
                self.eat('.');
                Item::Class(r"[\s\S]".to_owned())
            }
            Some('(') => {
                self.eat('(');
                let inner = self.alternatives(depth + 1)?;
                if !self.eat(')') {
                    return Err(self.bad("a parenthesis is not closed"));
                }
                Item::Group(inner)
            }
            Some('<' | '!') => return Err(self.bad("tokens in a grammar are not supported")),
            Some(c) if is_of_name(c) => Item::Name(self.name()?),
            _ => return Ok(None),
        };
        Ok(Some(item))
    }

    fn repeated(&mut self, item: Item) -> Result<Item, BadGbnf> {
        let (least, most) = match self.rest.chars().next() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => self.bounds()?,
            _ => return Ok(item),
        };
        if !self.rest.starts_with('}') && !self.rest.starts_with(['*', '+', '?']) {
            return Err(self.unexpected());
        }
        self.rest = &self.rest[1..];
        if most.is_some_and(|most| most < least) || least.max(most.unwrap_or(0)) > MOST_REPEATS {
            return Err(self.bad(format!(
                "repetitions go from a number to a larger one, at most {MOST_REPEATS}"
            )));
        }
        let repeated = Item::Repeated(Box::new(item), Repeat { least, most });
        // Several signs in a row apply one after the other.
        self.repeated(repeated)
    }

    /// `{m}`, `{m,}`, `{m,n}` or `{,n}`, up to the brace that closes it.
    fn bounds(&mut self) -> Result<(u32, Option<u32>), BadGbnf> {
        self.eat('{');
        let inside = self.rest.split('}').next().unwrap_or_default();
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let bounds = match inside.split_once(',') {
            None => number(inside).map(|n| (n, Some(n))),
            Some((least, most)) => {
                let least = if least.trim().is_empty() { Some(0) } else { number(least) };
                let most = if most.trim().is_empty() { Some(None) } else { number(most).map(Some) };
                least.zip(most)
            }
        };
        let Some(bounds) = bounds else {
            return Err(self.bad(format!("`{{{inside}}}` is no number of repetitions")));
        };
        self.rest = &self.rest[inside.len()..];
        Ok(bounds)
    }

    fn literal(&mut self) -> Result<Item, BadGbnf> {
        self.eat('"');
        let mut text = String::new();
        while !self.eat('"') {
            text.push(self.character()?);
        }
        Ok(Item::Literal(text))
    }

    fn class(&mut self) -> Result<Item, BadGbnf> {
        self.eat('[');
        let mut class = String::from(if self.eat('^') { "[^" } else { "[" });
        let mut empty = true;
        while !self.eat(']') {
            let first = self.character()?;
            let last = if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.eat('-');
                self.character()?
            } else {
                first
            };
            if last < first {
                return Err(self.bad(format!("a range from {first:?} to {last:?} is empty")));
            }
            empty = false;
            let (first, last) = (u32::from(first), u32::from(last));
            write!(class, "\\x{{{first:x}}}-\\x{{{last:x}}}").expect("a string takes everything");
        }
        if empty {
            return Err(self.bad("a class without characters"));
        }
        class.push(']');
        Ok(Item::Class(class))
    }

    /// One character of a literal or a class, escapes read.
    fn character(&mut self) -> Result<char, BadGbnf> {
        let Some(c) = self.take() else {
            return Err(self.bad("the grammar ends inside a literal or a class"));
        };
        if c == '\n' {
            return Err(self.bad("a line ends inside a literal or a class"));
        }
        if c != '\\' {
            return Ok(c);
        }
        match self.take() {
            Some('n') => Ok('\n'),
            Some('t') => Ok('\t'),
            Some('r') => Ok('\r'),
            Some('x') => self.code(2),
            Some('u') => self.code(4),
            Some('U') => self.code(8),
            Some(c @ ('"' | '\\' | '[' | ']' | '-' | '^' | '/')) => Ok(c),
            other => Err(self.bad(format!("`\\{}` is no escape", other.unwrap_or(' ')))),
        }
    }

    fn code(&mut self, digits: usize) -> Result<char, BadGbnf> {
        let text = self.rest.get(..digits).unwrap_or_default();
        let code = u32::from_str_radix(text, 16).ok().and_then(char::from_u32);
        let Some(c) = code.filter(|_| text.bytes().all(|b| b.is_ascii_hexdigit())) else {
            return Err(self.bad(format!("an escape needs {digits} digits that name a character")));
        };
        self.rest = &self.rest[digits..];
        Ok(c)
    }

    fn name(&mut self) -> Result<String, BadGbnf> {
        let end = self.rest.find(|c| !is_of_name(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return Err(self.unexpected());
        }
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(name.to_owned())
    }

    /// Skips blanks and comments.
    fn blanks(&mut self, lines: Lines) {
        loop {
            let ends_line = self.rest.starts_with(['\n', '\r']);
            if self.rest.starts_with('#') {
                let end = self.rest.find(['\n', '\r']).unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
            } else if self.rest.starts_with([' ', '\t']) || ends_line && lines == Lines::Crossed {
                self.take();
            } else {
                return;
            }
        }
    }

    fn eat(&mut self, wanted: char) -> bool {
        let eaten = self.rest.starts_with(wanted);
        if eaten {
            self.take();
        }
        eaten
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.line += usize::from(c == '\n');
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn unexpected(&self) -> BadGbnf {
        let next: String = self.rest.chars().take(12).collect();
        self.bad(format!("{next:?} was not expected"))
    }

    fn bad(&self, reason: impl Into<String>) -> BadGbnf {
        bad(self.line, reason)
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}
