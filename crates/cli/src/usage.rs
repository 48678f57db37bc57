//! What is said when a command line makes no sense.

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::failure::Failure;

/// Shows help where that was asked for, else tells in one sentence what is wrong; a program that
/// asked for `--json` is told in JSON too.
pub(crate) fn explain(error: &clap::Error) -> ExitCode {
    let shows_help = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
        ErrorKind::DisplayVersion,
    ];
    if shows_help.contains(&error.kind()) {
        // Nobody reads what cannot be printed.
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1));
    }
    let json = std::env::args_os().any(|argument| argument == "--json");
    ExitCode::from(Failure::usage("usage", sentence(&error.to_string())).report(json))
}

/// The parser's explanation without its layout: what is wrong, then its tips, or where help is.
fn sentence(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let mut blocks = text.split("\n\n").map(|block| {
        block.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>()
    });
    let wrong = blocks.next().unwrap_or_default().join(" ");
    let tips = blocks.flatten().filter_map(|line| line.strip_prefix("tip: "));
    let tips: Vec<_> = tips.collect();
    match (tips.is_empty(), wrong.contains("; ")) {
        (false, _) => format!("{wrong}; {}", tips.join("; ")),
        // Our own values name their remedy.
        (true, true) => wrong,
        (true, false) => format!("{wrong}; --help lists what can be typed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_becomes_one_sentence() {
        let missing = "error: the following required arguments were not provided:\n  --kld <TEXT>\n\n\
            Usage: lapidary eval --kld <TEXT>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            sentence(missing),
            "the following required arguments were not provided: --kld <TEXT>; --help lists what can be typed"
        );
        let tip = "error: unexpected argument '--tmp' found\n\n  tip: a similar argument exists: '--temp'\n\n\
            Usage: lapidary run\n";
        assert_eq!(
            sentence(tip),
            "unexpected argument '--tmp' found; a similar argument exists: '--temp'"
        );
        let own = "error: invalid value 'x' for '--kv <SPEC>': `x` is no cache regime; choose f16\n\nFor more\n";
        assert_eq!(
            sentence(own),
            "invalid value 'x' for '--kv <SPEC>': `x` is no cache regime; choose f16"
        );
    }
}
