//! What a line of a conversation means: something to say, or a command.

use std::path::PathBuf;

/// A line, understood.
#[derive(Debug, PartialEq)]
pub(super) enum Typed {
    /// To be said as it stands.
    Say(String),
    /// Blank.
    Nothing,
    /// To be done.
    Do(Command),
}

#[derive(Debug, PartialEq)]
pub(super) enum Command {
    Help,
    Quit,
    /// The operator's words; none without text.
    System(Option<String>),
    Temp(f32),
    Think(bool),
    /// A file of declarations; without one, none.
    Tools(Option<PathBuf>),
    Reset,
    Undo,
    Regen,
    Stats,
    Save(PathBuf),
    Load(PathBuf),
}

pub(super) const HELP: &str = "\
/system [TEXT]   set the system text, or drop it
/tools [FILE]    let the model call the functions of a JSON list, or none
/think on|off    let the model think first
/temp X          how freely it chooses: 0 takes the likeliest token
/regen           answer again, otherwise
/undo            take back the last question and its answer
/reset           forget everything that was said
/save FILE       write the conversation down
/load FILE       go on with a conversation
/stats           tokens, cache and speed of the last answer
/quit            leave; so does Ctrl-D
A line that ends in \\ goes on in the next, and so does one that begins with \"\"\" until another \"\"\".
A line that begins with // says what follows the first slash. Ctrl-C stops an answer.";

impl Typed {
    /// Understands what was typed; an error is one sentence for the person who typed it.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::Nothing);
        }
        match text.strip_prefix('/') {
            None => Ok(Self::Say(text.to_owned())),
            Some(said) if said.starts_with('/') => Ok(Self::Say(said.to_owned())),
            Some(command) => Command::read(command).map(Self::Do),
        }
    }
}

impl Command {
    fn read(typed: &str) -> Result<Self, String> {
        let (name, rest) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
        let rest = rest.trim();
        let some = || (!rest.is_empty()).then_some(rest);
        let file = || some().map(PathBuf::from).ok_or_else(|| format!("/{name} needs a file"));
        let alone = |command| match some() {
            None => Ok(command),
            Some(more) => Err(format!("/{name} takes nothing, not `{more}`")),
        };
        match name {
            "help" | "?" => alone(Self::Help),
            "quit" | "exit" | "bye" => alone(Self::Quit),
            "system" => Ok(Self::System(some().map(str::to_owned))),
            "temp" => temperature(rest).map(Self::Temp),
            "think" => match rest {
                "on" => Ok(Self::Think(true)),
                "off" => Ok(Self::Think(false)),
                _ => Err(format!("/think takes on or off, not `{rest}`")),
            },
            "tools" => Ok(Self::Tools(some().map(PathBuf::from))),
            "reset" | "clear" => alone(Self::Reset),
            "undo" => alone(Self::Undo),
            "regen" => alone(Self::Regen),
            "stats" => alone(Self::Stats),
            "save" => file().map(Self::Save),
            "load" => file().map(Self::Load),
            _ => Err(format!("there is no command /{name}; /help lists them")),
        }
    }
}

fn temperature(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|x: &f32| x.is_finite() && *x >= 0.0);
    number.ok_or_else(|| format!("/temp takes a number from 0 up, not `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_said_unless_they_begin_with_a_slash() {
        let said = |text: &str| Typed::read(text) == Ok(Typed::Say(text.to_owned()));
        assert!(said("hello /help") && said(" /help"));
        assert_eq!(Typed::read("//etc is a folder"), Ok(Typed::Say("/etc is a folder".into())));
        assert_eq!(Typed::read("  "), Ok(Typed::Nothing));
    }

    #[test]
    fn commands_take_what_they_need() {
        let does = |text| match Typed::read(text) {
            Ok(Typed::Do(command)) => command,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(
            does("/system Be brief.\nAlways."),
            Command::System(Some("Be brief.\nAlways.".into()))
        );
        assert_eq!(does("/system"), Command::System(None));
        assert_eq!(does("/temp 0.5"), Command::Temp(0.5));
        assert_eq!(does("/save a file.json "), Command::Save("a file.json".into()));
        assert_eq!(does("/think off"), Command::Think(false));
    }

    #[test]
    fn a_mistyped_command_is_one_sentence() {
        let refused = |text| Typed::read(text).expect_err("it is refused");
        assert_eq!(refused("/quti"), "there is no command /quti; /help lists them");
        assert_eq!(refused("/temp warm"), "/temp takes a number from 0 up, not `warm`");
        assert_eq!(refused("/temp -1"), "/temp takes a number from 0 up, not `-1`");
        assert_eq!(refused("/save"), "/save needs a file");
        assert_eq!(refused("/reset all"), "/reset takes nothing, not `all`");
        assert_eq!(refused("/think"), "/think takes on or off, not ``");
    }

    #[test]
    fn help_names_every_command() {
        let names = [
            "system", "tools", "think", "temp", "regen", "undo", "reset", "save", "load", "stats",
            "quit",
        ];
        assert!(names.iter().all(|name| HELP.contains(&format!("/{name}"))));
    }
}
