//! Rotary coordinates of a prompt with pictures, as Qwen3-VL counts them.
//!
//! Text has one coordinate on all three axes and each token advances it. A picture stands still in
//! time while its soft tokens spread over rows and columns; afterwards the count goes on beyond the
//! longer side.

/// A picture's soft tokens, row after row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grid {
    /// Soft tokens from left to right.
    pub columns: u32,
    /// Soft tokens from top to bottom.
    pub rows: u32,
}

impl Grid {
    /// How many soft tokens there are, at most `u32::MAX`.
    pub fn tokens(self) -> u32 {
        self.columns.saturating_mul(self.rows)
    }

    /// How far the count goes on.
    pub fn advance(self) -> u32 {
        self.columns.max(self.rows)
    }
}

/// Why pictures cannot lie in a prompt as they are said to.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AnglesError {
    /// A picture without soft tokens.
    #[error("picture {picture} has zero tokens ({} columns, {} rows)", grid.columns, grid.rows)]
    Empty {
        /// Which, from 0.
        picture: usize,
        /// Its size.
        grid: Grid,
    },
    /// Two pictures overlap, or are not in order.
    #[error("picture {picture} begins at {start}, before the prior region's end at {end}")]
    Overlap {
        /// Which, from 0.
        picture: usize,
        /// Where it begins.
        start: u32,
        /// Where it may begin.
        end: u32,
    },
    /// A picture ends beyond what can be counted.
    #[error("picture {picture} begins at {start}: region overflow with {tokens} tokens")]
    Overflow {
        /// Which, from 0.
        picture: usize,
        /// Where it begins.
        start: u32,
        /// Its soft tokens.
        tokens: u32,
    },
    /// A picture ends after the prompt.
    #[error("picture {picture} ends at {end} and extends past prompt_len {len}")]
    PastTheEnd {
        /// Which, from 0.
        picture: usize,
        /// Where it ends.
        end: u32,
        /// The prompt's length.
        len: u32,
    },
}

/// `[time, row, column]` of each of `len` positions. `pictures` are given with the positions where
/// they begin, in order; they may touch.
///
/// # Errors
/// A picture is empty, or does not lie in the prompt behind the one before it.
pub fn angles(len: u32, pictures: &[(Grid, u32)]) -> Result<Vec<[u32; 3]>, AnglesError> {
    check(len, pictures)?;
    let mut angles = Vec::with_capacity(len as usize);
    let mut count = 0;
    let text = |angles: &mut Vec<_>, count: &mut u32, end: u32| {
        while angles.len() < end as usize {
            angles.push([*count; 3]);
            *count += 1;
        }
    };
    for &(grid, start) in pictures {
        text(&mut angles, &mut count, start);
        let spread = |i| [count, count + i / grid.columns, count + i % grid.columns];
        angles.extend((0..grid.tokens()).map(spread));
        count += grid.advance();
    }
    text(&mut angles, &mut count, len);
    Ok(angles)
}

fn check(len: u32, pictures: &[(Grid, u32)]) -> Result<(), AnglesError> {
    let mut free = 0;
    for (picture, &(grid, start)) in pictures.iter().enumerate() {
        let tokens = grid.tokens();
        if tokens == 0 {
            return Err(AnglesError::Empty { picture, grid });
        }
        if start < free {
            return Err(AnglesError::Overlap { picture, start, end: free });
        }
        let overflow = AnglesError::Overflow { picture, start, tokens };
        let end = start.checked_add(tokens).ok_or(overflow)?;
        if end > len {
            return Err(AnglesError::PastTheEnd { picture, end, len });
        }
        free = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn grid(columns: u32, rows: u32) -> Grid {
        Grid { columns, rows }
    }

    /// The three axes, apart.
    fn axes(len: u32, pictures: &[(Grid, u32)]) -> [Vec<u32>; 3] {
        let angles = angles(len, pictures).unwrap_or_else(|e| panic!("{e}"));
        [0, 1, 2].map(|axis| angles.iter().map(|angle| angle[axis]).collect())
    }

    fn refused(len: u32, pictures: &[(Grid, u32)]) -> String {
        angles(len, pictures).expect_err("it is wrong").to_string()
    }

    #[test]
    fn text_counts_alike_on_all_axes() {
        assert_eq!(axes(0, &[]), [vec![], vec![], vec![]]);
        for axis in axes(5, &[]) {
            assert_eq!(axis, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn a_picture_stands_still_in_time_and_spreads_over_rows_and_columns() {
        let [time, row, column] = axes(9, &[(grid(3, 2), 2)]);
        assert_eq!(time, [0, 1, 2, 2, 2, 2, 2, 2, 5]);
        assert_eq!(row, [0, 1, 2, 2, 2, 3, 3, 3, 5]);
        assert_eq!(column, [0, 1, 2, 3, 4, 2, 3, 4, 5]);
    }

    #[test]
    fn a_picture_may_come_first() {
        let [time, row, column] = axes(6, &[(grid(3, 2), 0)]);
        assert_eq!(time, [0; 6]);
        assert_eq!(row, [0, 0, 0, 1, 1, 1]);
        assert_eq!(column, [0, 1, 2, 0, 1, 2]);
        let [time, row, column] = axes(5, &[(grid(2, 2), 0)]);
        assert_eq!(time, [0, 0, 0, 0, 2]);
        assert_eq!(row, [0, 0, 1, 1, 2]);
        assert_eq!(column, [0, 1, 0, 1, 2]);
    }

    #[test]
    fn text_goes_on_beyond_the_longer_side() {
        let [time, row, column] = axes(16, &[(grid(2, 2), 1), (grid(3, 3), 6)]);
        assert_eq!(time, [0, 1, 1, 1, 1, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 7]);
        assert_eq!(row, [0, 1, 1, 2, 2, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 7]);
        assert_eq!(column, [0, 1, 2, 1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6, 7]);
        let [time, row, column] = axes(10, &[(grid(2, 3), 1), (grid(1, 2), 7)]);
        assert_eq!(time, [0, 1, 1, 1, 1, 1, 1, 4, 4, 6]);
        assert_eq!(row, [0, 1, 1, 2, 2, 3, 3, 4, 5, 6]);
        assert_eq!(column, [0, 1, 2, 1, 2, 1, 2, 4, 4, 6]);
    }

    #[test]
    fn pictures_may_touch() {
        let [time, row, column] = axes(8, &[(grid(2, 2), 0), (grid(2, 2), 4)]);
        assert_eq!(time, [0, 0, 0, 0, 2, 2, 2, 2]);
        assert_eq!(row, [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(column, [0, 1, 0, 1, 2, 3, 2, 3]);
    }

    #[test]
    fn a_large_picture_takes_many_places_and_little_time() {
        let [time, ..] = axes(581, &[(grid(24, 24), 2)]);
        assert_eq!(time[..2], [0, 1]);
        assert!(time[2..578].iter().all(|t| *t == 2));
        assert_eq!(time[578..], [26, 27, 28]);
    }

    #[test]
    fn a_grid_knows_its_tokens_and_its_advance() {
        assert_eq!((grid(24, 24).tokens(), grid(12, 8).tokens()), (576, 96));
        let advances = [grid(24, 24), grid(32, 16), grid(8, 40)].map(Grid::advance);
        assert_eq!(advances, [24, 32, 40]);
    }

    #[test]
    fn pictures_in_wrong_places_are_refused_in_order() {
        let overlapping = [(grid(4, 4), 0), (grid(2, 2), 10)];
        assert!(refused(20, &overlapping).contains("before the prior region"));
        assert!(
            refused(20, &[(grid(2, 2), 8), (grid(2, 2), 0)]).contains("before the prior region")
        );
        assert!(refused(20, &[(grid(4, 4), 10)]).contains("extends past prompt_len"));
        assert!(refused(0, &[(grid(1, 1), 0)]).contains("extends past prompt_len"));
        assert!(refused(10, &[(grid(0, 5), 0)]).contains("zero tokens"));
        let endless = [(grid(u32::MAX, 2), 1)];
        assert!(refused(10, &endless).contains("region overflow"));
    }
}
