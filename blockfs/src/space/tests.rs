//! Free space against a map with a byte for each block.

use super::*;
use proptest::prelude::*;

const START: u64 = 50;

fn range(start: u64, blocks: u64) -> BlockRange {
    BlockRange { start, blocks }
}

fn options(group_blocks: u64, kept_blocks: u64) -> Options {
    Options {
        group_blocks,
        kept_blocks,
    }
}

fn used(start: u64, blocks: u64, ino: Ino) -> Used {
    Used {
        blocks: range(start, blocks),
        ino,
    }
}

fn empty(blocks: u64) -> Space {
    Space::build(range(START, blocks), options(64, 0), []).expect("nothing is wrong with it")
}

fn near(goal: u64, wanted: u64, least: u64) -> Request {
    Request {
        goal: Goal::Near(goal),
        wanted,
        least,
    }
}

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

/// Damaged extents are refused by name.
#[test]
fn damaged_extents() {
    let data = range(START, 100);
    let build = |extents: Vec<Used>| Space::build(data, options(8, 0), extents).err();
    let (a, b) = (used(60, 10, 1), used(69, 2, 2));
    assert_eq!(
        build(vec![b, a]),
        Some(SpaceError::Overlap {
            first: a,
            second: b
        })
    );
    assert_eq!(build(vec![used(60, 9, 1), b]), None, "side by side");
    for outside in [
        used(149, 2, 3),
        used(49, 1, 3),
        used(60, 0, 3),
        used(u64::MAX, 2, 3),
        used(0, u64::MAX, 3),
    ] {
        let error = build(vec![outside]);
        let expected = SpaceError::OutOfRange {
            range: outside.blocks,
            data,
            ino: Some(3),
        };
        assert_eq!(error, Some(expected));
    }
    let none = Space::build(data, options(0, 0), []).err();
    assert_eq!(none, Some(SpaceError::Options));
}

/// A list that names a block twice, or one outside, changes nothing.
#[test]
fn freeing_is_all_or_nothing() {
    let mut space = empty(100);
    let got = space
        .allocate(near(START, 20, 20), Source::Ordinary)
        .expect("free");
    let before = space.stats();
    for list in [
        vec![got, range(got.start + 3, 1)],
        vec![range(got.start, 5), range(START + 99, 2)],
        vec![range(got.start, 5), range(got.end(), 1)],
        vec![range(got.start, 0)],
    ] {
        assert!(space.free(&list).is_err(), "{list:?}");
        assert_eq!(space.stats(), before);
    }
}

/// A file that grows goes on where it ends, and near its goal otherwise.
#[test]
fn contiguous_first() {
    // 10 free at 50, 5 at 70, 100 at 200.
    let taken = [used(60, 10, 1), used(75, 125, 2)];
    let mut space = Space::build(range(START, 250), options(64, 0), taken).expect("disjoint");
    let mut get = |goal, wanted, least| {
        let request = Request {
            goal,
            wanted,
            least,
        };
        space
            .allocate(request, Source::Ordinary)
            .map(|got| (got.start, got.blocks))
    };
    assert_eq!(
        get(Goal::Continue(70), 8, 1),
        Ok((70, 5)),
        "a part, but without a new extent"
    );
    assert_eq!(
        get(Goal::Near(50), 20, 1),
        Ok((200, 20)),
        "in one piece rather than near"
    );
    assert_eq!(get(Goal::Near(280), 10, 1), Ok((280, 10)), "at the goal");
    assert_eq!(
        get(Goal::Near(230), 500, 1),
        Ok((220, 60)),
        "the longest if none is long enough"
    );
    assert!(matches!(
        get(Goal::Near(50), 500, 11),
        Err(SpaceError::Fragmented { .. })
    ));
}

/// What is kept is for the filesystem itself, what is promised for nobody else.
#[test]
fn kept_and_promised() {
    let mut space = Space::build(range(START, 100), options(64, 10), []).expect("empty");
    let promise = space.reserve(50).expect("free");
    assert_eq!(space.available(), 40);
    let got = space
        .allocate(near(START, 90, 1), Source::Ordinary)
        .expect("40 are left");
    assert_eq!(got.blocks, 40);
    let none = space.allocate(near(START, 1, 1), Source::Ordinary);
    assert_eq!(
        none,
        Err(SpaceError::NoSpace {
            least: 1,
            available: 0
        })
    );
    let own = space
        .allocate(near(START, 90, 1), Source::Internal)
        .expect("the kept ones");
    assert_eq!(own.blocks, 10);
    assert_eq!(
        space.take_for_discard(0, 1, 100),
        None,
        "the rest is promised"
    );
    space.unreserve(promise);
    assert_eq!(space.available(), 40);
}

/// The largest volume costs one run; directories are spread over its groups.
#[test]
fn the_largest_volume() {
    let blocks = crate::format::MAX_VOLUME_BLOCKS - START;
    let mut space = Space::build(range(START, blocks), Options::default(), []).expect("empty");
    assert_eq!(space.stats().runs, 1);
    let mut groups: Vec<u64> = (1..=1000)
        .map(|dir| match space.directory_goal(dir) {
            Goal::Near(at) | Goal::Continue(at) => (at - START) / GROUP_BLOCKS,
        })
        .collect();
    groups.sort_unstable();
    groups.dedup();
    assert_eq!(groups.len(), 1000);
    let whole = space
        .allocate(near(0, u64::MAX, blocks), Source::Ordinary)
        .expect("all of it");
    assert_eq!(whole.blocks, blocks);
    let other = Space::build(range(START, 5), Options::default(), []).expect("empty");
    let error = space.grow(other.data()).expect_err("it shrinks");
    assert!(matches!(error, SpaceError::Shrinks { .. }));
}

/// A token of another volume is refused.
#[test]
fn foreign_tokens() {
    let mut one = empty(10);
    let got = one
        .allocate(near(START, 3, 3), Source::Ordinary)
        .expect("free");
    let token = one.free(&[got]).expect("in use");
    assert_eq!(empty(10).release(token), Err(SpaceError::UnknownToken));
}
