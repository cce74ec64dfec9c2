//! Random histories, compared with a map that has a byte for each block.

use super::*;
use proptest::prelude::*;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Block {
    Free,
    Used,
    Limbo(usize),
}

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        goal: u64,
        go_on: bool,
        wanted: u64,
        least: u64,
        reserved: bool,
    },
    Free {
        from: u64,
        pieces: u64,
    },
    FreeWhatIsNotUsed {
        at: u64,
    },
    Release {
        nth: usize,
    },
    Reserve {
        blocks: u64,
    },
    Unreserve,
    Discard {
        from: u64,
        least: u64,
        most: u64,
    },
    Grow {
        by: u64,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..400u64, any::<bool>(), 0..40u64, 0..10u64, any::<bool>()).prop_map(
            |(goal, go_on, wanted, least, reserved)| Step::Allocate {
                goal, go_on, wanted, least, reserved
            }
        ),
        4 => (0..400u64, 1..4u64).prop_map(|(from, pieces)| Step::Free { from, pieces }),
        1 => (0..400u64).prop_map(|at| Step::FreeWhatIsNotUsed { at }),
        3 => any::<usize>().prop_map(|nth| Step::Release { nth }),
        1 => (0..60u64).prop_map(|blocks| Step::Reserve { blocks }),
        1 => Just(Step::Unreserve),
        1 => (0..400u64, 0..5u64, 1..50u64)
            .prop_map(|(from, least, most)| Step::Discard { from, least, most }),
        1 => (0..30u64).prop_map(|by| Step::Grow { by }),
    ]
}

struct Model {
    space: Space,
    blocks: Vec<Block>,
    tokens: Vec<(usize, Token)>,
    next: usize,
    reservation: Reservation,
}

impl Model {
    fn slice(&mut self, range: BlockRange) -> &mut [Block] {
        let from = usize::try_from(range.start - START).expect("small");
        &mut self.blocks[from..from + usize::try_from(range.blocks).expect("small")]
    }

    /// Pieces of up to 5 used blocks from `from` on.
    fn pieces(&self, from: u64, pieces: u64) -> Vec<BlockRange> {
        let mut found: Vec<BlockRange> = Vec::new();
        for (nth, &block) in self.blocks.iter().enumerate() {
            let at = START + nth as u64;
            if at < START + from || block != Block::Used {
                continue;
            }
            let full = found.len() as u64 == pieces;
            match found.last_mut() {
                Some(last) if last.end() == at && last.blocks < 5 => last.blocks += 1,
                _ if full => break,
                _ => found.push(range(at, 1)),
            }
        }
        found
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Allocate {
                goal,
                go_on,
                wanted,
                least,
                reserved,
            } => {
                self.allocate(goal, go_on, (wanted, least), reserved);
            }
            Step::Free { from, pieces } => {
                let pieces = self.pieces(from, pieces);
                let token = self.space.free(&pieces).expect("they are in use");
                for piece in pieces {
                    let limbo = Block::Limbo(self.next);
                    self.slice(piece).fill(limbo);
                }
                self.tokens.push((self.next, token));
                self.next += 1;
            }
            Step::FreeWhatIsNotUsed { at } => {
                let at = at % self.blocks.len() as u64;
                if self.blocks[usize::try_from(at).expect("small")] != Block::Used {
                    let range = range(START + at, 1);
                    let error = self.space.free(&[range]).expect_err("not in use");
                    assert!(matches!(error, SpaceError::NotInUse { .. }), "{error}");
                }
            }
            Step::Release { nth } => {
                if !self.tokens.is_empty() {
                    let (id, token) = self.tokens.remove(nth % self.tokens.len());
                    self.space.release(token).expect("ours");
                    for block in &mut self.blocks {
                        if *block == Block::Limbo(id) {
                            *block = Block::Free;
                        }
                    }
                }
            }
            Step::Reserve { blocks } => {
                let available = self.space.available();
                match self.space.reserve(blocks) {
                    Ok(more) => {
                        assert!(blocks <= available);
                        let old = std::mem::replace(&mut self.reservation, more);
                        self.space.unreserve(old);
                    }
                    Err(error) => assert_eq!(
                        error,
                        SpaceError::NoSpace {
                            least: blocks,
                            available
                        }
                    ),
                }
            }
            Step::Unreserve => {
                let old = std::mem::take(&mut self.reservation);
                self.space.unreserve(old);
            }
            Step::Discard { from, least, most } => {
                if let Some((taken, token)) = self.space.take_for_discard(START + from, least, most)
                {
                    assert!(taken.blocks >= least && taken.blocks <= most);
                    let limbo = Block::Limbo(self.next);
                    let slice = self.slice(taken);
                    assert!(slice.iter().all(|&block| block == Block::Free));
                    slice.fill(limbo);
                    self.tokens.push((self.next, token));
                    self.next += 1;
                }
            }
            Step::Grow { by } => {
                let mut data = self.space.data();
                data.blocks += by;
                self.space.grow(data).expect("it grows");
                let len = self.blocks.len() + usize::try_from(by).expect("small");
                self.blocks.resize(len, Block::Free);
            }
        }
        self.compare();
    }

    fn allocate(&mut self, goal: u64, go_on: bool, (wanted, least): (u64, u64), reserved: bool) {
        let goal = if go_on {
            Goal::Continue(START + goal)
        } else {
            Goal::Near(START + goal)
        };
        let promised = self.reservation.blocks();
        let available = if reserved {
            promised
        } else {
            self.space.available()
        };
        let source = if reserved {
            Source::Reserved(&mut self.reservation)
        } else {
            Source::Ordinary
        };
        let longest = self.space.stats().longest_run;
        let got = self.space.allocate(
            Request {
                goal,
                wanted,
                least,
            },
            source,
        );
        let least = least.clamp(1, wanted.max(1));
        let wanted = wanted.max(1).min(available);
        match got {
            Ok(got) => {
                assert!(got.blocks >= least && got.blocks <= wanted, "{got:?}");
                // Less than wanted only at the goal, or if there is no run that long.
                assert!(
                    got.blocks == wanted || goal == Goal::Continue(got.start) || longest < wanted
                );
                let slice = self.slice(got);
                assert!(
                    slice.iter().all(|&block| block == Block::Free),
                    "used twice: {got:?}"
                );
                slice.fill(Block::Used);
                let left = promised - if reserved { got.blocks } else { 0 };
                assert_eq!(self.reservation.blocks(), left);
            }
            Err(SpaceError::NoSpace { .. }) => assert!(available < least),
            Err(error) => {
                assert_eq!(error, SpaceError::Fragmented { least, longest });
                assert!(longest < least);
            }
        }
    }

    /// The runs are the maximal ones of the map, the sums are right.
    fn compare(&self) {
        let mut expected: Vec<BlockRange> = Vec::new();
        for (nth, _) in self
            .blocks
            .iter()
            .enumerate()
            .filter(|(_, b)| **b == Block::Free)
        {
            let at = START + nth as u64;
            match expected.last_mut() {
                Some(last) if last.end() == at => last.blocks += 1,
                _ => expected.push(range(at, 1)),
            }
        }
        let runs: Vec<BlockRange> = self.space.free_runs(0).collect();
        assert_eq!(runs, expected);
        let count = |wanted: fn(&Block) -> bool| {
            self.blocks.iter().filter(|block| wanted(block)).count() as u64
        };
        let expected = Stats {
            total: self.blocks.len() as u64,
            free: count(|block| *block == Block::Free),
            limbo: count(|block| matches!(block, Block::Limbo(_))),
            reserved: self.reservation.blocks(),
            used: count(|block| *block == Block::Used),
            longest_run: runs.iter().map(|run| run.blocks).max().unwrap_or(0),
            runs: runs.len() as u64,
        };
        assert_eq!(self.space.stats(), expected);
        let in_groups: u64 = (0..self.space.groups())
            .map(|g| self.space.group_free(g))
            .sum();
        assert_eq!(in_groups, expected.free);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever is asked for in whatever order: no block is used twice or lost, limbo is kept,
    /// promises are held.
    #[test]
    fn same_as_a_map_of_blocks(steps in proptest::collection::vec(any_step(), 1..120)) {
        let blocks = 300;
        let mut model = Model {
            space: empty(blocks),
            blocks: vec![Block::Free; usize::try_from(blocks).expect("small")],
            tokens: Vec::new(),
            next: 0,
            reservation: Reservation::default(),
        };
        for step in &steps {
            model.step(step);
        }
    }

    /// What is built from extents in any order has exactly the gaps free.
    #[test]
    fn built_from_extents(
        lengths in proptest::collection::vec((0..5u64, 1..5u64), 0..40),
        turn: usize,
    ) {
        let mut at = START;
        let mut extents = Vec::new();
        for (nth, (gap, len)) in lengths.into_iter().enumerate() {
            extents.push(used(at + gap, len, nth as u64));
            at += gap + len;
        }
        let data = range(START, at - START + 3);
        let sum: u64 = extents.iter().map(|used| used.blocks.blocks).sum();
        if !extents.is_empty() {
            let mid = turn % extents.len();
            extents.rotate_left(mid);
        }
        let space = Space::build(data, options(8, 0), extents.clone()).expect("disjoint");
        prop_assert_eq!(space.stats().used, sum);
        for used in &extents {
            prop_assert_eq!(space.not_in_use(used.blocks), None);
        }
    }
}
