//! Remarks on valid settings: what is odd about them, and what this version cannot honour.

use super::environment::Environment;
use super::launcher::{number, spelled, Placement};
use super::launcher_remarks;
use super::nearest;
use super::reader::Reader;
use super::table::Key;

impl Reader<'_> {
    /// What is odd though not wrong, one sentence each.
    pub(super) fn warnings(&self, is_alone: bool) -> Vec<String> {
        let environment = &self.config.environment;
        let mut warnings = misspelt(environment);
        if self.set_by(Key::Role).is_some() {
            return warnings;
        }
        if let Some(placement) = &self.placement {
            warnings.extend(self.too_few(placement));
            warnings.extend(launcher_remarks::beside(placement.launcher, environment).filter(|_| is_alone));
        } else if is_alone {
            warnings.extend(launcher_remarks::remarks(environment));
            let hints = [Key::SchedHost, Key::SchedPort, Key::WorkerNum, Key::RankId];
            let set: Vec<String> =
                hints.into_iter().filter(|key| self.set_by(*key).is_some()).map(|key| self.name(key)).collect();
            if !set.is_empty() {
                warnings.push(format!(
                    "MS_ROLE is not set, so this process is a cluster of one and ignores {}",
                    set.join(", ")
                ));
            }
        }
        warnings
    }

    /// The launcher has started fewer processes than a setting of ours says. The setting counts, but its user may have forgotten
    /// that it is set. Only rank 0 warns.
    fn too_few(&self, placement: &Placement) -> Option<String> {
        let (environment, launcher) = (&self.config.environment, placement.launcher);
        let told = number(environment, launcher.size).filter(|_| number(environment, launcher.rank) == Some(0))?;
        let workers = self.small(Key::WorkerNum).ok().flatten().filter(|workers| u64::from(*workers) > told)?;
        let size = spelled(launcher.size, environment);
        let name = self.name(Key::WorkerNum);
        Some(format!("{size} is {told}, but {name} is {workers}: {name} counts"))
    }
}

/// A `MUSTER_` variable that no setting has was meant for us. Most `MS_` variables are another program's, so only a
/// slip of the pen among them is reported.
fn misspelt(environment: &Environment) -> Vec<String> {
    let of_original = environment.like_the_originals().iter();
    let slips = of_original.filter_map(|name| Some(nearest::slip(name, nearest::original(name)?)));
    environment.unknown().iter().map(|name| nearest::unknown(name)).chain(slips).collect()
}
