//! Groups items by their semaphore.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Groups items by semaphore. The items of a group keep their order; the groups are in the order of
/// their first items.
pub(super) fn by_semaphore<T>(
    items: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> Arc<str>,
) -> Vec<(Arc<str>, Vec<T>)> {
    let mut groups: Vec<(Arc<str>, Vec<T>)> = Vec::new();
    let mut indexes = HashMap::new();
    for item in items {
        let name = name(&item);
        let index = *indexes.entry(Arc::clone(&name)).or_insert_with(|| {
            groups.push((name, Vec::new()));
            groups.len() - 1
        });
        groups[index].1.push(item);
    }
    groups
}

/// Groups items by the number of their server.
pub(super) fn by_server<T>(
    items: Vec<T>,
    server: impl Fn(&T) -> Option<usize>,
) -> impl Iterator<Item = Vec<T>> {
    let mut groups: BTreeMap<_, Vec<T>> = BTreeMap::new();
    for item in items {
        groups.entry(server(&item)).or_default().push(item);
    }
    groups.into_values()
}

/// Cuts a list into pieces of about `most` units.
pub(super) fn pieces<T>(items: Vec<T>, most: usize, weight: impl Fn(&T) -> u32) -> Vec<Vec<T>> {
    let mut pieces = vec![Vec::new()];
    let mut units = 0;
    for item in items {
        if units >= most {
            pieces.push(Vec::new());
            units = 0;
        }
        units += weight(&item) as usize;
        if let Some(piece) = pieces.last_mut() {
            piece.push(item);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_ends_when_it_has_enough_units() {
        let pieces_of = |weights: &[u32]| pieces(weights.to_vec(), 4, |weight| *weight);
        assert_eq!(pieces_of(&[1, 2, 1, 1]), [vec![1, 2, 1], vec![1]]);
        assert_eq!(pieces_of(&[3, 3, 1]), [vec![3, 3], vec![1]]);
        assert_eq!(pieces_of(&[9, 1, 1, 1, 1]), [vec![9], vec![1; 4]]);
        assert_eq!(pieces_of(&[]), [Vec::<u32>::new()]);
    }
}
