//! Lets a step function find out where in its schedule a step lies.

/// Walks through the phases of a schedule, each of so many steps, until it finds the one in which a step lies.
pub(super) struct Phases {
    left: Option<u32>,
}

impl Phases {
    /// Looks for this step.
    pub(super) fn of(step: u32) -> Phases {
        Phases { left: Some(step) }
    }

    /// The next phase, of `steps` steps. Returns the step's number within it, if the step lies there.
    pub(super) fn within(&mut self, steps: u32) -> Option<u32> {
        let left = self.left?;
        if left < steps {
            self.left = None;
            return Some(left);
        }
        self.left = Some(left - steps);
        None
    }

    /// The next phase, of one step, left out unless `present`. Returns whether the step is this one.
    pub(super) fn once(&mut self, present: bool) -> bool {
        self.within(u32::from(present)).is_some()
    }
}

/// The least number of rounds in which something can spread to `size` ranks when it doubles in each.
pub(super) fn rounds(size: u32) -> u32 {
    size.next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_lies_in_one_phase() {
        let place = |step| {
            let mut phases = Phases::of(step);
            (phases.within(2), phases.once(false), phases.once(true), phases.within(1))
        };
        assert_eq!(place(0), (Some(0), false, false, None));
        assert_eq!(place(1), (Some(1), false, false, None));
        assert_eq!(place(2), (None, false, true, None));
        assert_eq!(place(3), (None, false, false, Some(0)));
        assert_eq!(place(4), (None, false, false, None));
    }

    #[test]
    fn rounds_are_the_logarithm_rounded_up() {
        let expected = [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (1 << 20, 20)];
        for (size, wanted) in expected {
            assert_eq!(rounds(size), wanted, "{size} ranks");
        }
    }
}
