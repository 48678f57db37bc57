//! Timings as a page with plots, which opens without a network: one bar per measurement, and how
//! decoding slows down with depth.

use std::fmt::Write;

use crate::bench::{Test, Timing};

/// Width of a plot, in pixels, and of the labels to its left.
const WIDTH: f64 = 560.0;
const LABELS: f64 = 240.0;
/// Height of a bar with the space around it.
const BAR: f64 = 26.0;
/// Height of the plot over depth.
const HEIGHT: f64 = 220.0;

/// A whole HTML document. `title` names the model, each of `facts` is a line about the run.
pub fn page(title: &str, facts: &[String], timings: &[Timing]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>body{{font:14px sans-serif;margin:2em}}.bar{{fill:#37c}}.floor,.axis{{stroke:#222}}\
         .line{{fill:none;stroke:#37c;stroke-width:2}}td,th{{padding:2px 12px;text-align:right}}</style>\n\
         <h1>{title}</h1>\n",
        title = escaped(title),
    );
    for fact in facts {
        let _ = writeln!(page, "<p>{}</p>", escaped(fact));
    }
    page += "<p>Tokens per second; a black line is what the machine allows at most.</p>\n";
    bars(&mut page, timings);
    let mut batches: Vec<_> = decoded(timings).map(|t| t.batch).collect();
    batches.dedup();
    for batch in batches {
        let points: Vec<_> = decoded(timings).filter(|t| t.batch == batch).collect();
        if points.len() > 1 {
            depths(&mut page, batch, &points);
        }
    }
    table(&mut page, timings);
    page + "</html>\n"
}

/// Plain decoding.
fn decoded(timings: &[Timing]) -> impl Iterator<Item = &Timing> {
    timings.iter().filter(|t| t.test == Test::Decode && t.luck.is_none())
}

fn label(t: &Timing) -> String {
    match t.test {
        Test::Prefill => format!("prefill {}", t.n),
        Test::Decode => {
            let guesses = t.luck.map_or_else(String::new, |luck| {
                format!(", {} guesses of which {} come true", luck.length, luck.accept)
            });
            format!("decode {}, depth {}, {} at once{guesses}", t.n, t.depth, t.batch)
        }
    }
}

/// One bar per measurement, with its spread in the label. Prompts are so much faster than texts that
/// each kind has a scale of its own.
fn bars(page: &mut String, timings: &[Timing]) {
    let height = BAR * timings.len() as f64;
    let _ = writeln!(page, "<svg width=\"{}\" height=\"{height}\">", LABELS + WIDTH + 140.0);
    for (i, t) in timings.iter().enumerate() {
        let same = timings.iter().filter(|other| other.test == t.test);
        let most = same.map(|t| t.tok_s.max(floor(t))).fold(f64::MIN_POSITIVE, f64::max);
        let (y, long) = (BAR * i as f64, WIDTH * t.tok_s / most);
        let middle = y + BAR * 0.65;
        let _ = writeln!(
            page,
            "<text x=\"0\" y=\"{middle}\">{}</text><rect class=\"bar\" x=\"{LABELS}\" y=\"{}\" \
             width=\"{long:.1}\" height=\"{}\"/><text x=\"{:.1}\" y=\"{middle}\">{:.1} ± {:.0} %</text>",
            label(t),
            y + 3.0,
            BAR - 6.0,
            LABELS + WIDTH * t.tok_s.max(floor(t)) / most + 6.0,
            t.tok_s,
            50.0 * t.spread,
        );
        if floor(t) > 0.0 {
            let x = LABELS + WIDTH * floor(t) / most;
            let _ = writeln!(
                page,
                "<line class=\"floor\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y}\" y2=\"{}\"/>",
                y + BAR,
            );
        }
    }
    *page += "</svg>\n";
}

/// The machine's own bound where it is known, else zero.
fn floor(t: &Timing) -> f64 {
    t.floor_tok_s.unwrap_or(0.0)
}

/// Tokens per second over depth.
fn depths(page: &mut String, batch: u32, points: &[&Timing]) {
    let deepest = points.iter().map(|t| t.depth).max().unwrap_or(1).max(1);
    let most = points.iter().map(|t| t.tok_s).fold(f64::MIN_POSITIVE, f64::max);
    let place = |t: &Timing| {
        let x = LABELS + WIDTH * f64::from(t.depth) / f64::from(deepest);
        (x, 20.0 + (HEIGHT - 40.0) * (1.0 - t.tok_s / most))
    };
    let _ = writeln!(
        page,
        "<h2>Decoding over depth, {batch} at once</h2>\n<svg width=\"{}\" height=\"{HEIGHT}\">\
         <line class=\"axis\" x1=\"{LABELS}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>",
        LABELS + WIDTH + 140.0,
        LABELS + WIDTH,
        y = HEIGHT - 20.0,
    );
    let line: Vec<_> =
        points.iter().map(|t| place(t)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(page, "<polyline class=\"line\" points=\"{}\"/>", line.join(" "));
    for t in points {
        let (x, y) = place(t);
        let _ = writeln!(
            page,
            "<text x=\"{x:.1}\" y=\"{:.1}\">{:.1}</text><text x=\"{x:.1}\" y=\"{}\">{}</text>",
            y - 6.0,
            t.tok_s,
            HEIGHT - 4.0,
            t.depth,
        );
    }
    *page += "</svg>\n";
}

fn table(page: &mut String, timings: &[Timing]) {
    *page += "<table><tr><th>test<th>tok/s<th>spread<th>at most<th>MB<th>Gop</tr>\n";
    for t in timings {
        let floor =
            t.floor_tok_s.map_or_else(|| "unknown".to_owned(), |floor| format!("{floor:.1}"));
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{:.1}<td>{:.1} %<td>{floor}<td>{:.0}<td>{:.1}</tr>",
            label(t),
            t.tok_s,
            100.0 * t.spread,
            t.cost.bytes / 1e6,
            t.cost.ops / 1e9,
        );
    }
    *page += "</table>\n";
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cost;

    fn timing(depth: u32, tok_s: f64) -> Timing {
        let cost = Cost { bytes: 1e6, ops: 1e9 };
        let floor_tok_s = Some(200.0);
        Timing {
            test: Test::Decode,
            n: 64,
            depth,
            batch: 1,
            luck: None,
            tok_s,
            spread: 0.04,
            floor_tok_s,
            cost,
        }
    }

    #[test]
    fn a_page_has_every_figure_and_asks_nobody() {
        let timings = [timing(0, 123.4), timing(4096, 98.7)];
        let page = page("<a model>", &["two & two".into()], &timings);
        for figure in ["123.4", "98.7", "4096", "200.0", "&lt;a model&gt;", "two &amp; two"] {
            assert!(page.contains(figure), "no {figure} in {page}");
        }
        for elsewhere in ["http", "src=", "href=", "url(", "<script", "@import"] {
            assert!(!page.contains(elsewhere), "{elsewhere} in {page}");
        }
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert_eq!(page.matches("<svg").count(), 2);
    }
}
