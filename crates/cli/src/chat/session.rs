//! One conversation with one model: what each line does.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lapidary_core::TokenId;
use lapidary_engine::{Request, Sampling};
use lapidary_text::{ChatTemplate, Conversation, Dialogue, Fitted, Overflow, StopStrings, Unfit};

use super::answer::{Ended, Heard, hear};
use super::command::{Command, HELP, Typed};
use super::screen::{Screen, count, remark};
use super::{read_json, read_tools};
use crate::engine::Running;
use crate::failure::Failure;
use crate::model::{Feature, Text, noticed};
use crate::run::rate;

/// How answers are made.
pub(super) struct Settings {
    pub(super) sampling: Sampling,
    pub(super) max_tokens: Option<u32>,
    pub(super) stop: StopStrings,
    pub(super) overflow: Overflow,
}

/// A conversation under way.
pub(super) struct Session<'a> {
    running: &'a Running,
    text: &'a Text,
    template: &'a ChatTemplate,
    settings: Settings,
    dialogue: Dialogue,
    screen: Screen,
    /// How often the last question was answered anew: each time is another draw.
    again: u64,
    stats: Option<Stats>,
}

/// What comes after a line.
pub(super) enum Next {
    Line,
    Quit,
}

/// Something did not go well.
pub(super) enum Trouble {
    /// The conversation goes on as if the line had not been typed.
    Told(String),
    /// It cannot go on.
    Fatal(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Fatal(failure)
    }
}

/// A failure that a conversation survives.
fn told(failure: Failure) -> Trouble {
    Trouble::Told(failure.message)
}

/// The last answer in numbers.
struct Stats {
    prompt: usize,
    cached: u32,
    tokens: usize,
    first: Duration,
    total: Duration,
}

/// The part of the context that is kept free for an answer when old turns are forgotten.
const ANSWER_PART: u32 = 4;

impl<'a> Session<'a> {
    pub(super) fn new(
        running: &'a Running,
        text: &'a Text,
        template: &'a ChatTemplate,
        settings: Settings,
        dialogue: Dialogue,
        screen: Screen,
    ) -> Self {
        let (again, stats) = (0, None);
        Self { running, text, template, settings, dialogue, screen, again, stats }
    }

    /// What is worth knowing before the first line.
    pub(super) fn greet(&self) {
        let Running { device, context, .. } = self.running;
        remark(&format!("{device}, {context} tokens of context; /help lists the commands"));
    }

    /// What the next line is: empty, or the function whose result it is.
    pub(super) fn prompt(&self) -> String {
        self.dialogue.awaited().map_or_else(String::new, |call| format!("{} ", call.name))
    }

    /// Does what a line says.
    pub(super) fn handle(&mut self, line: &str, pressed: &AtomicBool) -> Result<Next, Trouble> {
        match Typed::read(line).map_err(Trouble::Told)? {
            Typed::Nothing => {}
            Typed::Say(text) => self.say(text, pressed)?,
            Typed::Do(Command::Quit) => return Ok(Next::Quit),
            Typed::Do(command) => self.obey(command, pressed)?,
        }
        Ok(Next::Line)
    }

    /// A question, or the result of a call that the model waits for.
    fn say(&mut self, text: String, pressed: &AtomicBool) -> Result<(), Trouble> {
        let before = self.dialogue.clone();
        if self.dialogue.awaited().is_some() {
            self.dialogue.result(text);
        } else {
            self.dialogue.ask(text);
        }
        if self.dialogue.awaited().is_some() {
            return Ok(());
        }
        self.again = 0;
        self.reply(before, pressed)
    }

    fn obey(&mut self, command: Command, pressed: &AtomicBool) -> Result<(), Trouble> {
        match command {
            Command::Help => self.screen.line(HELP)?,
            Command::Quit => {}
            Command::System(text) => self.dialogue.system = text,
            Command::Temp(temperature) => self.settings.sampling.temperature = temperature,
            Command::Think(think) => self.think(think)?,
            Command::Tools(file) => self.tools(file.as_deref())?,
            Command::Reset => self.dialogue.reset(),
            Command::Undo => {
                if !self.dialogue.undo() {
                    return Err(Trouble::Told("there is nothing to take back".into()));
                }
            }
            Command::Regen => self.regenerate(pressed)?,
            Command::Stats => self.show_stats()?,
            Command::Save(file) => self.save(&file)?,
            Command::Load(file) => self.load(&file)?,
        }
        Ok(())
    }

    fn think(&mut self, think: bool) -> Result<(), Trouble> {
        noticed(self.template, Feature::Thinking).map_err(told)?;
        self.dialogue.think = think;
        Ok(())
    }

    fn tools(&mut self, file: Option<&Path>) -> Result<(), Trouble> {
        let tools = file.map_or_else(|| Ok(Vec::new()), read_tools).map_err(Trouble::Told)?;
        if !tools.is_empty() {
            noticed(self.template, Feature::Tools(&tools)).map_err(told)?;
        }
        self.dialogue.tools = tools;
        Ok(())
    }

    fn regenerate(&mut self, pressed: &AtomicBool) -> Result<(), Trouble> {
        let before = self.dialogue.clone();
        if !self.dialogue.reopen() {
            return Err(Trouble::Told("there is no answer to give again".into()));
        }
        self.again += 1;
        self.reply(before, pressed)
    }

    fn save(&self, file: &Path) -> Result<(), Trouble> {
        let text = format!("{:#}\n", self.dialogue.to_json());
        let told = |e| Trouble::Told(format!("{}: {e}", file.display()));
        std::fs::write(file, text).map_err(told)?;
        remark(&format!("saved {} to {}", count(self.dialogue.turns(), "turn"), file.display()));
        Ok(())
    }

    fn load(&mut self, file: &Path) -> Result<(), Trouble> {
        let value = read_json(file).map_err(Trouble::Told)?;
        let told = |e| Trouble::Told(format!("{}: {e}", file.display()));
        let mut loaded = Dialogue::from_json(&value).map_err(told)?;
        loaded.think = self.dialogue.think;
        self.dialogue = loaded;
        remark(&format!("loaded {} from {}", count(self.dialogue.turns(), "turn"), file.display()));
        Ok(())
    }

    /// Lets the model answer; where it cannot, everything is as it was `before`.
    fn reply(&mut self, before: Dialogue, pressed: &AtomicBool) -> Result<(), Trouble> {
        let Fitted { prompt, dropped } = match self.fit() {
            Ok(fitted) => fitted,
            Err(trouble) => {
                self.dialogue = before;
                return Err(trouble);
            }
        };
        if dropped > 0 {
            let turns = count(dropped, "turn");
            remark(&format!("the context is full: forgot {turns}, the oldest first"));
        }
        let heard = self.hear(prompt, pressed)?;
        let silent = heard.tokens == 0 && heard.ended == Ended::Interrupted;
        self.remark_on(&heard.ended)?;
        if silent {
            self.dialogue = before;
            return Ok(());
        }
        for call in &heard.reply.tool_calls {
            self.screen.line(&format!("call {}({})", call.name, call.arguments))?;
        }
        self.dialogue.answer(heard.reply);
        if let Some(call) = self.dialogue.awaited() {
            remark(&format!("what you type next is the result of {}", call.name));
        }
        Ok(())
    }

    fn fit(&mut self) -> Result<Fitted, Trouble> {
        let context = self.running.context;
        let answer = match self.settings.overflow {
            Overflow::Stop => 1,
            Overflow::DropOldest => {
                (context / ANSWER_PART).min(self.settings.max_tokens.unwrap_or(u32::MAX)).max(1)
            }
        };
        let room = context.saturating_sub(answer) as usize;
        let (template, tokenizer) = (self.template, &self.text.tokenizer);
        let tokens = |chat: &Conversation| template.render(chat).map(|p| p.encode(tokenizer));
        let fitted = self.dialogue.fit(self.settings.overflow, room, tokens);
        fitted.map_err(|unfit| match (&unfit, self.settings.overflow) {
            (Unfit::Unsayable(_), _) => Trouble::Told(unfit.to_string()),
            (_, Overflow::DropOldest) => {
                Trouble::Told(format!("{unfit}; say less, or start with a larger --ctx"))
            }
            (_, Overflow::Stop) => Trouble::Told(format!(
                "{unfit}; /undo or /reset, or start with --overflow drop-oldest or a larger --ctx"
            )),
        })
    }

    fn hear(&mut self, prompt: Vec<TokenId>, pressed: &AtomicBool) -> Result<Heard, Failure> {
        let Settings { sampling, max_tokens, stop, .. } = &self.settings;
        let length = prompt.len();
        let seed = sampling.seed.wrapping_add(self.again);
        let request = Request {
            max_tokens: *max_tokens,
            stop: self.text.end.clone(),
            sampling: Sampling { seed, ..sampling.clone() },
            ..Request::new(self.running.engine.next_id(), prompt)
        };
        let ticket = self.running.engine.submit(request);
        let ticket = ticket.map_err(|e| Failure::work("refused", e))?;
        let tokenizer = &self.text.tokenizer;
        let heard = hear(ticket, tokenizer, stop.clone(), &mut self.screen, pressed)?;
        self.screen.end()?;
        let Heard { cached, tokens, first, total, .. } = heard;
        self.stats = Some(Stats { prompt: length, cached, tokens, first, total });
        Ok(heard)
    }

    fn remark_on(&self, ended: &Ended) -> Result<(), Failure> {
        match ended {
            Ended::Stop => {}
            Ended::Interrupted => remark("stopped"),
            Ended::Length => match self.settings.max_tokens {
                Some(most) if self.stats.as_ref().is_some_and(|s| s.tokens as u32 == most) => {
                    remark(&format!("the answer ends after -n {most} tokens"));
                }
                _ => remark("the context is full: the answer ends here"),
            },
            Ended::Failed(reason) => return Err(Failure::work("engine", reason)),
        }
        Ok(())
    }

    fn show_stats(&mut self) -> Result<(), Trouble> {
        let Some(Stats { prompt, cached, tokens, first, total }) = &self.stats else {
            return Err(Trouble::Told("there has been no answer yet".into()));
        };
        let read = rate(prompt.saturating_sub(*cached as usize), *first);
        let wrote = rate(tokens.saturating_sub(1), total.saturating_sub(*first));
        let (milliseconds, context) = (first.as_secs_f64() * 1e3, self.running.context);
        let lines = [
            format!("prompt   {prompt} tokens, {cached} of them cached; {read:.0} tok/s"),
            format!("answer   {tokens} tokens; first after {milliseconds:.0} ms; {wrote:.1} tok/s"),
            format!("context  {} of {context} tokens", prompt + tokens),
        ];
        for line in lines {
            self.screen.line(&line)?;
        }
        Ok(())
    }
}
