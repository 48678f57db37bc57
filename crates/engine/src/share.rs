//! How the rows of a step are shared out.

use crate::Limits;

/// What one sequence could use of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// Known tokens to read, at least one.
    pub(crate) unread: usize,
    /// Guesses to check after them.
    pub(crate) drafts: usize,
}

/// Rows for each claim, given in order of precedence.
///
/// Sequences that need one row come first, so a text that has begun moves in every step. Then
/// those with more to read, each taking what it can. Guesses get what is left: a guess never
/// takes a row from a known token.
pub(crate) fn share(claims: &[Claim], limits: &Limits) -> Vec<usize> {
    let mut given = vec![0; claims.len()];
    let mut left = limits.step;
    let mut grant = |given: &mut usize, rows: usize| {
        let rows = rows.min(limits.burst - *given).min(left);
        *given += rows;
        left -= rows;
    };
    for (given, claim) in given.iter_mut().zip(claims) {
        if claim.unread == 1 {
            grant(given, 1);
        }
    }
    for (given, claim) in given.iter_mut().zip(claims) {
        if claim.unread > 1 {
            grant(given, claim.unread);
        }
    }
    // Whoever could not read everything has a full burst, or nothing is left.
    for (given, claim) in given.iter_mut().zip(claims) {
        grant(given, claim.drafts);
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(step: usize, burst: usize, claims: &[(usize, usize)]) -> Vec<usize> {
        let limits = Limits { slots: claims.len(), context: 99, burst, step, waiting: 0 };
        let claim = |&(unread, drafts)| Claim { unread, drafts };
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
    fn nobody_is_passed_over_while_there_is_a_row_each() {
        assert_eq!(rows(3, 8, &[(1, 7), (9, 0), (1, 7)]), [1, 1, 1]);
    }
}
