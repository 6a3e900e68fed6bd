//! Binomial trees over places, which are ranks counted from the root, going round. The subtree of a place begins with
//! the place, and has as many places as its lowest set bit says, as far as there are so many.

use super::broadcast::place;
use super::phases::rounds;
use super::Shape;

/// How many levels of children a place has room for: its lowest set bit, or all rounds at the root.
fn levels(place: u32, size: u32) -> u32 {
    if place == 0 {
        rounds(size)
    } else {
        place.trailing_zeros()
    }
}

/// How many children this rank's place has. Child k stands 2^k above it.
pub(super) fn children(shape: &Shape<'_>) -> u32 {
    let place = place(shape);
    (0..levels(place, shape.size)).take_while(|level| shape.size - place > 1 << level).count() as u32
}

/// The parent of this rank's place; not for the root.
pub(super) fn parent(shape: &Shape<'_>) -> u32 {
    let place = place(shape);
    place & (place - 1)
}

/// Rank 0 and its last child can be two heads, equals, of the ranks below each of them. For a head: the other head.
pub(super) fn other_head(shape: &Shape<'_>) -> Option<u32> {
    let last = (1 << rounds(shape.size)) / 2;
    match shape.rank {
        _ if shape.size == 1 => None,
        0 => Some(last),
        rank => (rank == last).then_some(0),
    }
}

/// How many children this rank has, where rank 0 counts the other head as none.
pub(super) fn children_below_heads(shape: &Shape<'_>) -> u32 {
    let all = children(shape);
    if shape.rank == 0 {
        all.saturating_sub(1)
    } else {
        all
    }
}

/// How many places the subtree of a place has, itself included.
pub(super) fn subtree(place: u32, size: u32) -> u32 {
    (size - place).min(1 << levels(place, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Call, CallKind};

    #[test]
    fn every_place_but_the_root_hangs_on_one_and_subtrees_add_up() {
        for size in 1..40 {
            let call = Call { kind: CallKind::Gather, dtype: None, op: None, root: Some(0), count: 0, layout: 0 };
            let shape = |rank| Shape { rank, size, call, in_place: false, layout: None };
            let mut hangs = vec![0; size as usize];
            for rank in 0..size {
                let mut below = 1;
                for child in 0..children(&shape(rank)) {
                    let child = rank + (1 << child);
                    assert_eq!(parent(&shape(child)), rank);
                    hangs[child as usize] += 1;
                    below += subtree(child, size);
                }
                assert_eq!(below, subtree(rank, size), "place {rank} of {size}");
            }
            assert!(hangs[0] == 0 && hangs[1..].iter().all(|hangs| *hangs == 1));
        }
    }
}
