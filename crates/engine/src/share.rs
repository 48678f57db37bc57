//! How the rows of a step are shared out.

use std::ops::Range;

use crate::Limits;

/// What one sequence could use of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim {
    /// Known tokens to read, at least one.
    pub(crate) unread: usize,
    /// Guesses to check after them.
    pub(crate) drafts: usize,
    /// Stretches of the known tokens that are read whole or not yet.
    pub(crate) blocks: Vec<Range<usize>>,
}

impl Claim {
    /// The most rows, up to `rows`, that end inside no block.
    fn whole(&self, rows: usize) -> usize {
        let cut = self.blocks.iter().find(|block| block.start < rows && rows < block.end);
        cut.map_or(rows, |block| block.start)
    }
}

/// Rows for each claim, given in order of precedence.
///
/// Sequences that need one row come first, so a text that has begun moves in every step. Then
/// those with more to read, each taking what it can without cutting a block; whoever comes first
/// among them finds room for any block that [`Limits::block`] admits. Guesses get what is left: a
/// guess never takes a row from a known token.
pub(crate) fn share(claims: &[Claim], limits: &Limits) -> Vec<usize> {
    let mut given = vec![0; claims.len()];
    let mut left = limits.step;
    let mut grant = |given: &mut usize, rows: usize, claim: &Claim| {
        let rows = rows.min(limits.burst - *given).min(left);
        let rows = if *given == 0 { claim.whole(rows) } else { rows };
        *given += rows;
        left -= rows;
    };
    for (given, claim) in given.iter_mut().zip(claims) {
        if claim.unread == 1 {
            grant(given, 1, claim);
        }
    }
    for (given, claim) in given.iter_mut().zip(claims) {
        if claim.unread > 1 {
            grant(given, claim.unread, claim);
        }
    }
    for (given, claim) in given.iter_mut().zip(claims) {
        if *given == claim.unread {
            grant(given, claim.drafts, claim);
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(step: usize, burst: usize, claims: &[(usize, usize)]) -> Vec<usize> {
        let limits = Limits { slots: claims.len(), context: 99, burst, step, waiting: 0 };
        let claim = |&(unread, drafts)| Claim { unread, drafts, ..Claim::default() };
        share(&claims.iter().map(claim).collect::<Vec<_>>(), &limits)
    }

    #[test]
    fn single_rows_first_then_prompts_then_guesses() {
        assert_eq!(rows(10, 8, &[(20, 0), (1, 3), (5, 0), (1, 0)]), [8, 1, 0, 1]);
        assert_eq!(rows(16, 8, &[(20, 0), (1, 3), (5, 0), (1, 0)]), [8, 2, 5, 1]);
        assert_eq!(rows(30, 8, &[(20, 0), (1, 9), (5, 9), (1, 0)]), [8, 8, 8, 1]);
    }

    #[test]
    fn guesses_follow_only_a_prompt_read_to_its_end() {
        assert_eq!(rows(9, 4, &[(5, 4), (2, 4)]), [4, 4]);
    }

    #[test]
    fn a_block_is_read_whole_or_not_yet() {
        let limits = Limits { slots: 3, context: 99, burst: 8, step: 10, waiting: 0 };
        let six = |at: usize| std::iter::once(at..at + 6).collect();
        let block = |at: usize| Claim { unread: 12, drafts: 0, blocks: six(at) };
        let one = Claim { unread: 1, ..Claim::default() };
        let given = |claims: &[Claim]| share(claims, &limits);
        assert_eq!(given(&[block(0)]), [8]);
        assert_eq!(given(&[block(3)]), [3], "the block would end after the burst");
        assert_eq!(given(&[block(2), block(0)]), [8, 0], "two rows are left, and it takes six");
        assert_eq!(given(&[block(0), one.clone(), one]), [8, 1, 1]);
        assert_eq!(limits.block(), 8);
    }

    #[test]
    fn nobody_is_passed_over_while_there_is_a_row_each() {
        assert_eq!(rows(3, 8, &[(1, 7), (9, 0), (1, 7)]), [1, 1, 1]);
    }
}
