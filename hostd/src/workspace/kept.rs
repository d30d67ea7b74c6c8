//! Refs under `refs/phalanx/` whose work is in the person's own refs too: by ancestry, or, after a squash or a rebase,
//! by the same tree or the same change. Only looks. Leaves to others: which of them may go.

use std::collections::{BTreeMap, BTreeSet};

use protocol::ids::RunId;
use protocol::time::Timestamp;

use super::error::Result;
use super::git::{Call, Git};
use super::repository::Repository;
use super::{Workspaces, refs};

/// A ref that is not the only way to its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedRef {
    pub name: String,
    pub commit: String,
    /// When the commit was made.
    pub at: Timestamp,
}

/// Commits of a branch among which the same change is looked for.
const COMPARED: &str = "--max-count=2000";

impl Workspaces {
    /// The refs of ours whose work the person has. Those that keep bases are not among them.
    pub async fn merged_refs(&self, repository: &Repository) -> Result<Vec<MergedRef>> {
        self.within("look for merged refs", merged(&self.git, repository)).await
    }

    /// Whether a ref of ours is there.
    pub async fn has_ref(&self, repository: &Repository, name: &str) -> Result<bool> {
        let names = [name.to_owned()];
        let found = self.within("look for a ref", refs::read(&self.git, repository, &names)).await?;
        Ok(found.contains_key(name))
    }
}

fn call<'a>(git: &'a Git, repository: &Repository) -> Call<'a> {
    git.call("look for merged refs").git_dir(&repository.common_dir).act_as(repository.act_as)
}

async fn text(call: Call<'_>) -> Result<String> {
    Ok(String::from_utf8_lossy(&call.ok().await?).into_owned())
}

async fn merged(git: &Git, repository: &Repository) -> Result<Vec<MergedRef>> {
    let format = "--format=%(objectname) %(committerdate:unix) %(refname)";
    let listed = text(call(git, repository).args(["for-each-ref", format, "refs/phalanx/"])).await?;
    let ours: Vec<MergedRef> = listed.lines().filter_map(parse).collect();
    if ours.is_empty() {
        return Ok(Vec::new());
    }
    let branches = ["for-each-ref", "--format=%(refname)", "refs/heads/", "refs/remotes/"];
    let branches = text(call(git, repository).args(branches)).await?;
    // A branch that we made for the work itself counts for ancestry, not as something it was merged into.
    let targets: Vec<&str> =
        branches.lines().filter(|name| !name.starts_with("refs/heads/phalanx/")).collect();
    let open = unreached(git, repository, &ours).await?;
    let left: BTreeSet<&str> =
        ours.iter().map(|ours| ours.commit.as_str()).filter(|commit| open.contains_key(*commit)).collect();
    let same = same_as_some(git, repository, &left, &open, &targets).await?;
    let is_kept = |ours: &MergedRef| {
        !open.contains_key(&ours.commit) || same.contains(&ours.commit) || is_of_a_merge(&ours.name)
    };
    Ok(ours.iter().filter(|ours| is_kept(ours)).cloned().collect())
}

fn parse(line: &str) -> Option<MergedRef> {
    let mut words = line.splitn(3, ' ');
    let (commit, at, name) = (words.next()?, words.next()?, words.next()?);
    let at = Timestamp(at.parse::<u64>().ok()?.saturating_mul(1000));
    (!name.starts_with("refs/phalanx/base/")).then(|| MergedRef {
        name: name.to_owned(),
        commit: commit.to_owned(),
        at,
    })
}

/// What a merge, or a look at one, made on its way: all work in it has refs of its own.
fn is_of_a_merge(name: &str) -> bool {
    let mut levels = name.rsplit('/');
    let number = levels.next().is_some_and(|number| number.parse::<u32>().is_ok());
    number && levels.next() == Some("merge") && levels.next().is_some_and(|run| run.parse::<RunId>().is_ok())
}

/// Commits that only refs of ours lead to, with their parents: for all refs at once, since a process for each makes
/// seconds of a few dozen.
type Unreached = BTreeMap<String, Vec<String>>;

async fn unreached(git: &Git, repository: &Repository, ours: &[MergedRef]) -> Result<Unreached> {
    let commits: String = ours.iter().map(|ours| format!("{}\n", ours.commit)).collect();
    let beyond = ["rev-list", "--parents", "--stdin", "--not", "--branches", "--tags", "--remotes", "--not"];
    let listed = text(call(git, repository).args(beyond).stdin(commits)).await?;
    let lines = listed.lines().filter_map(|line| {
        let mut ids = line.split(' ').map(str::to_owned);
        Some((ids.next()?, ids.collect()))
    });
    Ok(lines.collect())
}

/// Where the work of a commit begins: the one commit through which it is connected to what the person has. Without such
/// a one, the commit itself, whose parting point is the same and is not shared with others.
fn begins_at<'a>(commit: &'a str, open: &'a Unreached) -> &'a str {
    let (mut left, mut seen, mut borders) = (vec![commit], BTreeSet::new(), BTreeSet::new());
    while let Some(at) = left.pop() {
        match open.get(at) {
            Some(parents) => {
                left.extend(parents.iter().map(String::as_str).filter(|parent| seen.insert(*parent)))
            }
            None => drop(borders.insert(at)),
        }
    }
    match (borders.pop_first(), borders.is_empty()) {
        (Some(border), true) => border,
        _ => commit,
    }
}

/// Those whose work some branch has under other commits: since it parted from ours, a commit of it has the same tree, or
/// makes the same change as ours as a whole.
async fn same_as_some(
    git: &Git,
    repository: &Repository,
    commits: &BTreeSet<&str>,
    open: &Unreached,
    targets: &[&str],
) -> Result<BTreeSet<String>> {
    let mut same = BTreeSet::new();
    if commits.is_empty() {
        return Ok(same);
    }
    let input: String = commits.iter().map(|commit| format!("{commit}\n")).collect();
    let listed = ["log", "--no-walk=unsorted", "--stdin", "--format=%H %T"];
    let listed = text(call(git, repository).args(listed).stdin(input)).await?;
    let trees: BTreeMap<&str, &str> = listed.lines().filter_map(|line| line.split_once(' ')).collect();
    for target in targets {
        for (parted, mut group) in by_parting(git, repository, commits, open, target).await? {
            let range = format!("{parted}..{target}");
            let log = text(call(git, repository).args(["log", COMPARED, "--format=%T", &range])).await?;
            let theirs: BTreeSet<&str> = log.lines().collect();
            let has_tree = |commit: &&str| trees.get(*commit).is_some_and(|tree| theirs.contains(tree));
            same.extend(group.iter().copied().filter(has_tree).map(str::to_owned));
            group.retain(|commit| !same.contains(*commit));
            if theirs.is_empty() || group.is_empty() {
                continue;
            }
            // Each commit with the parting point in place of its parents.
            let input: String = group.iter().map(|commit| format!("{commit} {parted}\n")).collect();
            let diffs =
                call(git, repository).args(["diff-tree", "--stdin", "-p", "-m"]).stdin(input).ok().await?;
            let ours = patch_ids(git, repository, diffs).await?;
            if ours.is_empty() {
                continue;
            }
            let log = ["log", "-p", "--no-merges", COMPARED, "--format=commit %H", &range];
            let theirs = call(git, repository).args(log).ok().await?;
            let theirs = patch_ids(git, repository, theirs).await?;
            let theirs: BTreeSet<&str> = theirs.iter().map(|(patch, _)| patch.as_str()).collect();
            same.extend(
                ours.iter().filter(|ours| theirs.contains(ours.0.as_str())).map(|ours| ours.1.clone()),
            );
        }
    }
    Ok(same)
}

/// The commits by where the branch parted from them; those that it shares nothing with are left out.
async fn by_parting<'a>(
    git: &Git,
    repository: &Repository,
    commits: &BTreeSet<&'a str>,
    open: &'a Unreached,
    target: &str,
) -> Result<BTreeMap<String, Vec<&'a str>>> {
    let mut known: BTreeMap<&str, String> = BTreeMap::new();
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for commit in commits {
        let start = begins_at(commit, open);
        let parted = match known.get(start) {
            Some(parted) => parted,
            None => {
                let found = call(git, repository).args(["merge-base", start, target]).output().await?;
                known.entry(start).or_insert(String::from_utf8_lossy(&found.stdout).trim().to_owned())
            }
        };
        if !parted.is_empty() {
            groups.entry(parted.clone()).or_default().push(commit);
        }
    }
    Ok(groups)
}

/// Of each commit of a log: the id of its patch, and its own.
/// White space counts: it is all that some programs differ in. A git before 2.39 cannot say so; then none is the same.
async fn patch_ids(git: &Git, repository: &Repository, patches: Vec<u8>) -> Result<Vec<(String, String)>> {
    let output = call(git, repository).args(["patch-id", "--verbatim"]).stdin(patches).output().await?;
    let listed = if output.status.success() { output.stdout } else { Vec::new() };
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let pairs = listed.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs.map(|(patch, commit)| (patch.to_owned(), commit.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::is_of_a_merge;

    #[test]
    fn only_what_a_merge_made_counts_as_made_of_other_work() {
        let run = protocol::ids::RunId::from_parts(1, 1);
        assert!(is_of_a_merge(&format!("refs/phalanx/{run}/merge/12")));
        for other in ["merge/1/2", "merge/x", "task/1", "merge"] {
            assert!(!is_of_a_merge(&format!("refs/phalanx/{run}/{other}")), "{other}");
        }
        assert!(!is_of_a_merge("refs/phalanx/adhoc/merge/1"), "an agent may be called so");
    }
}
