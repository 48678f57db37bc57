//! llama.cpp's grammars, rewritten in the syntax of Lark.
//!
//! A rule that does not lead back to itself becomes a terminal: one expression over characters. If
//! that is so for `root`, the whole grammar is one, and means exactly what it says. In the rules
//! that do lead back to themselves, neighbours that are such expressions are joined, and each is
//! taken for as long as it goes on, as lexers do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::gbnf::parse::{Alternatives, Item, Repeat, parse};

mod parse;

/// A grammar is no GBNF, or says something that cannot be enforced.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line} of the GBNF grammar: {reason}")]
pub struct BadGbnf {
    /// Counted from one.
    pub line: usize,
    /// What is wrong there.
    pub reason: String,
}

type Rules = BTreeMap<String, Alternatives>;

/// The same grammar for llguidance.
pub(crate) fn to_lark(text: &str) -> Result<String, BadGbnf> {
    let rules = parse(text)?;
    let loops = looping(&rules);
    let mut lark =
        Lark { loops: &loops, rules: String::new(), terminals: String::new(), joined: 0 };
    for (name, alternatives) in &rules {
        let body = if loops.contains(name.as_str()) {
            lark.rule_body(alternatives)
        } else {
            terminal_body(alternatives)
        };
        let line = format!("{}: {body}\n", symbol(name, &loops));
        if loops.contains(name.as_str()) { lark.rules += &line } else { lark.terminals += &line }
    }
    Ok(format!("start: {}\n{}{}", symbol("root", &loops), lark.rules, lark.terminals))
}

/// The rules that lead to themselves, or to one that does: what is left when rules that name none
/// but rules already taken away are taken away.
fn looping(rules: &Rules) -> BTreeSet<&str> {
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, body) in rules {
        let names = named.entry(name).or_default();
        body.for_each_name(&mut |part| {
            if names.insert(part) {
                users.entry(part).or_default().push(name);
            }
        });
    }
    let mut open: Vec<&str> =
        named.iter().filter(|(_, names)| names.is_empty()).map(|(name, _)| *name).collect();
    while let Some(done) = open.pop() {
        named.remove(done);
        for user in users.remove(done).unwrap_or_default() {
            let names = named.get_mut(user).expect("it names a rule that was left");
            names.remove(done);
            if names.is_empty() {
                open.push(user);
            }
        }
    }
    named.into_keys().collect()
}

/// Lark tells terminals from rules by the case of their names.
fn symbol(name: &str, loops: &BTreeSet<&str>) -> String {
    let mut symbol = if loops.contains(name) { "r_".to_owned() } else { "T_".to_owned() };
    for c in name.chars() {
        match c {
            'a'..='z' if loops.contains(name) => symbol.push(c),
            '0'..='9' => symbol.push(c),
            'a'..='z' => symbol.push(c.to_ascii_uppercase()),
            // Distinct for every other character, in the letters of either case.
            c => {
                let code = format!("_{:x}_", u32::from(c));
                let upper = !loops.contains(name);
                symbol += &if upper { code.to_uppercase() } else { code };
            }
        }
    }
    symbol
}

/// Writes the rules that lead back to themselves.
struct Lark<'a> {
    loops: &'a BTreeSet<&'a str>,
    rules: String,
    terminals: String,
    /// Terminals made of neighbours so far.
    joined: usize,
}

impl Lark<'_> {
    fn rule_body(&mut self, alternatives: &Alternatives) -> String {
        let bodies: Vec<_> = alternatives.0.iter().map(|items| self.sequence(items)).collect();
        bodies.join(" | ")
    }

    fn sequence(&mut self, items: &[Item]) -> String {
        let mut parts = Vec::new();
        let mut rest = items;
        while let Some(first) = rest.first() {
            let run = rest.iter().take_while(|item| item.is_regular(self.loops)).count();
            if run > 0 {
                parts.push(self.terminal(&rest[..run]));
                rest = &rest[run..];
            } else {
                parts.push(self.item(first));
                rest = &rest[1..];
            }
        }
        if parts.is_empty() { "\"\"".to_owned() } else { parts.join(" ") }
    }

    fn item(&mut self, item: &Item) -> String {
        match item {
            Item::Name(name) => symbol(name, self.loops),
            Item::Group(inner) => format!("({})", self.rule_body(inner)),
            Item::Repeated(inner, repeat) => format!("({}){repeat}", self.item(inner)),
            Item::Literal(_) | Item::Class(_) => unreachable!("characters are regular"),
        }
    }

    /// A terminal of its own for neighbours that are expressions over characters.
    fn terminal(&mut self, items: &[Item]) -> String {
        self.joined += 1;
        let name = format!("J{}", self.joined);
        let body = terminal_sequence(items);
        writeln!(self.terminals, "{name}: {body}").expect("a string takes everything");
        // A terminal that may be nothing is left out where it is nothing.
        name
    }
}

fn terminal_body(alternatives: &Alternatives) -> String {
    let bodies: Vec<_> = alternatives.0.iter().map(|items| terminal_sequence(items)).collect();
    bodies.join(" | ")
}

fn terminal_sequence(items: &[Item]) -> String {
    let parts: Vec<_> = items.iter().map(terminal_item).collect();
    if parts.is_empty() { "\"\"".to_owned() } else { parts.join(" ") }
}

fn terminal_item(item: &Item) -> String {
    match item {
        Item::Literal(text) => literal(text),
        Item::Class(class) => format!("/{class}/"),
        Item::Name(name) => symbol(name, &BTreeSet::new()),
        Item::Group(inner) => format!("({})", terminal_body(inner)),
        Item::Repeated(inner, repeat) => format!("({}){repeat}", terminal_item(inner)),
    }
}

/// A JSON string, which Lark's literals are.
fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl std::fmt::Display for Repeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.least, self.most) {
            (0, None) => f.write_str("*"),
            (1, None) => f.write_str("+"),
            (0, Some(1)) => f.write_str("?"),
            (least, None) => write!(f, "{{{least},}}"),
            (least, Some(most)) => write!(f, "{{{least},{most}}}"),
        }
    }
}
