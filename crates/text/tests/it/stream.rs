//! Streamed bytes and stop strings: any cut gives the same text.

use lapidary_text::{EmptyStop, StopStrings, TextStream, TokenText};
use proptest::prelude::*;

/// Bytes that are nearly text.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        any::<String>().prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..4),
        Just(vec![0xf0, 0x9d, 0x84]),
        Just(vec![0xe2, 0x86]),
        Just(vec![0xed, 0xa0, 0x80]),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_text(bytes in bytes(), cuts in proptest::collection::vec(1..5_usize, 1..40)) {
        let (mut stream, mut text, mut rest) = (TextStream::default(), String::new(), &bytes[..]);
        for cut in cuts.iter().cycle() {
            let (piece, later) = rest.split_at((*cut).min(rest.len()));
            text.push_str(&stream.push(piece));
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        text.push_str(&stream.finish());
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn characters_come_whole_and_at_once() {
    let mut stream = TextStream::default();
    let texts: Vec<_> = "a→".as_bytes().iter().map(|byte| stream.push(&[*byte])).collect();
    assert_eq!(texts, ["a", "", "", "→"]);
}

#[test]
fn broken_bytes_are_replaced_at_once() {
    let mut stream = TextStream::default();
    assert_eq!(stream.push(b"\xff"), "\u{fffd}");
    assert_eq!(stream.push(b"\xf0\x9d"), "");
    assert_eq!(stream.push(b"x"), "\u{fffd}x");
}

/// What may be shown of `text`, by looking at all of it at once.
fn before_first_stop(text: &str, stops: &[String]) -> (String, Option<usize>) {
    for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
        let ending = stops.iter().enumerate().filter(|(_, stop)| text[..end].ends_with(*stop));
        if let Some((index, stop)) = ending.max_by_key(|(_, stop)| stop.len()) {
            return (text[..end - stop.len()].to_owned(), Some(index));
        }
    }
    (text.to_owned(), None)
}

proptest! {
    #[test]
    fn stops_are_found_as_if_all_text_were_there(
        pieces in proptest::collection::vec("[abé]{0,4}", 0..12),
        stops in proptest::collection::hash_set("[abé]{1,4}", 0..4),
    ) {
        let stops: Vec<String> = stops.into_iter().collect();
        let mut watch = StopStrings::new(stops.clone()).expect("none is empty");
        let (mut shown, mut stopped) = (String::new(), None);
        for piece in &pieces {
            let passed = watch.push(piece);
            shown.push_str(&passed.text);
            stopped = passed.stopped;
        }
        shown.push_str(&watch.finish());
        prop_assert_eq!((shown, stopped), before_first_stop(&pieces.concat(), &stops));
    }

    #[test]
    fn text_is_held_back_no_longer_than_needed(text in "[ab]{0,12}", stop in "[ab]{1,4}") {
        let mut watch = StopStrings::new(vec![stop.clone()]).expect("it is not empty");
        let passed = watch.push(&text);
        if passed.stopped.is_none() {
            let held = &text[passed.text.len()..];
            prop_assert!(stop.starts_with(held));
            let longer = passed.text.char_indices().map(|(at, _)| &text[at..]);
            prop_assert!(longer.into_iter().all(|suffix| !stop.starts_with(suffix)));
        }
    }
}

#[test]
fn of_stops_that_end_together_the_longest_counts() {
    for stops in [["a", "ba"], ["ba", "a"]] {
        let longest = stops.iter().position(|stop| *stop == "ba");
        let mut watch = StopStrings::new(stops.map(str::to_owned).into()).expect("none is empty");
        let passed = watch.push("cba");
        assert_eq!((passed.text.as_str(), passed.stopped), ("c", longest));
    }
}

#[test]
fn nothing_comes_after_a_stop() {
    let mut watch = StopStrings::new(vec!["END".to_owned()]).expect("it is not empty");
    assert_eq!(watch.push("one E").text, "one ");
    let passed = watch.push("ND two");
    assert_eq!((passed.text.as_str(), passed.stopped), ("", Some(0)));
    assert_eq!(watch.push("three").text, "");
    assert_eq!(watch.finish(), "");
}

#[test]
fn an_empty_stop_string_is_refused() {
    let stops = vec!["a".to_owned(), String::new()];
    assert_eq!(StopStrings::new(stops).err(), Some(EmptyStop { index: 1 }));
}

/// AiDotNet #1888: usage and log-probabilities counted tokens of the stop string.
#[test]
fn tokens_are_counted_up_to_the_stop() {
    let kept = |stops: &[&str], tokens: &[&str]| {
        let stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut text = TokenText::new(StopStrings::new(stops).unwrap());
        let mut shown = String::new();
        for token in tokens {
            let passed = text.push(token.as_bytes());
            shown.push_str(&passed.text);
            if passed.stopped.is_some() {
                return (shown, text.kept());
            }
        }
        shown.push_str(&text.finish().text);
        (shown, text.kept())
    };
    let is = |text: &str, count| (text.to_owned(), count);
    assert_eq!(kept(&["END"], &["a", "b", "END", "c"]), is("ab", 2));
    assert_eq!(kept(&["END"], &["a", "E", "N", "D"]), is("a", 1));
    assert_eq!(kept(&["END"], &["a", "bE", "ND"]), is("ab", 2), "a token that is partly text");
    assert_eq!(kept(&["END"], &["aENDb"]), is("a", 1));
    assert_eq!(kept(&["END"], &["END"]), is("", 0));
    assert_eq!(kept(&["END"], &["a", "E", "N"]), is("aEN", 3), "held back, then let go");
    assert_eq!(kept(&["→"], &["é", "→"]), is("é", 1));
    assert_eq!(kept(&[], &["a", "b"]), is("ab", 2));
    assert_eq!(kept(&["\n\n", "b"], &["a", "", "\n", "\n"]), is("a", 1));
}

proptest! {
    #[test]
    fn the_tokens_kept_are_those_the_text_needs(
        tokens in proptest::collection::vec("[abc]{0,3}", 0..12),
        stop in "[abc]{1,3}",
    ) {
        let mut text = TokenText::new(StopStrings::new(vec![stop]).unwrap());
        let mut shown = String::new();
        let mut stopped = false;
        for token in &tokens {
            let passed = text.push(token.as_bytes());
            shown.push_str(&passed.text);
            stopped = passed.stopped.is_some();
            if stopped {
                break;
            }
        }
        if stopped {
            let kept = text.kept();
            prop_assert!(tokens[..kept].concat().len() >= shown.len());
            prop_assert!(kept == 0 || tokens[..kept - 1].concat().len() < shown.len());
        } else {
            shown.push_str(&text.finish().text);
            prop_assert_eq!(text.kept(), tokens.len());
            prop_assert_eq!(shown, tokens.concat());
        }
    }
}
