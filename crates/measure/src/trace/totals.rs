//! How often each operation ran and how long it took.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Category;

/// Time of one kind of operation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Total {
    /// Times it ran.
    pub count: u64,
    /// All of them together.
    pub time: Duration,
}

impl Total {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.time += time;
    }
}

/// Time by operation and by category. Displays as a table, longest first.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    ops: BTreeMap<(Category, &'static str), Total>,
}

impl Totals {
    pub(super) fn add(&mut self, category: Category, op: &'static str, time: Duration) {
        self.ops.entry((category, op)).or_default().add(time);
    }

    /// Of one operation.
    pub fn of(&self, op: &str) -> Total {
        let found = self.ops.iter().find(|((_, name), _)| *name == op);
        found.map(|(_, total)| *total).unwrap_or_default()
    }

    /// Of one category.
    pub fn of_category(&self, category: Category) -> Duration {
        self.ops.iter().filter(|((c, _), _)| *c == category).map(|(_, total)| total.time).sum()
    }

    /// Of everything.
    pub fn time(&self) -> Duration {
        self.ops.values().map(|total| total.time).sum()
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.time().as_secs_f64();
        let share = |time: Duration| 100.0 * time.as_secs_f64() / all.max(f64::MIN_POSITIVE);
        let mut rows: Vec<_> = self.ops.iter().collect();
        rows.sort_by_key(|(_, total)| std::cmp::Reverse(total.time));
        writeln!(f, "{:>10} {:>6} {:>9} {:>10}  operation", "ms", "%", "count", "each, µs")?;
        for ((category, op), total) in rows {
            let ms = total.time.as_secs_f64() * 1e3;
            let each = ms * 1e3 / total.count as f64;
            let (share, count) = (share(total.time), total.count);
            writeln!(f, "{ms:>10.2} {share:>6.1} {count:>9} {each:>10.2}  {op} ({category})")?;
        }
        for category in Category::ALL {
            let time = self.of_category(category);
            if !time.is_zero() {
                let ms = time.as_secs_f64() * 1e3;
                writeln!(f, "{ms:>10.2} {:>6.1} {:>20}  all {category}", share(time), "")?;
            }
        }
        Ok(())
    }
}
