//! A base that somebody wrote to serves neither a verification nor another agent.

use std::path::{Path, PathBuf};

use hostd::workspace::{CommitMode, Wanted, Workspace};

use crate::fixture::{Fixture, can_be_root, git, kinds, write};

/// The only base there is.
fn base(fixture: &Fixture) -> PathBuf {
    let repositories = std::fs::read_dir(fixture.state().join("bases")).unwrap().flatten();
    let mut found: Vec<PathBuf> = repositories
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .flat_map(|entry| std::fs::read_dir(entry.path()).unwrap().flatten())
        .map(|entry| entry.path())
        .filter(|path| !path.to_string_lossy().contains(".damaged"))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

async fn verify(fixture: &Fixture, name: &str, commit: &str) -> Workspace {
    let dir = fixture.agent_dir(name);
    let near = fixture.resolved().await;
    fixture.workspaces.fresh_checkout(&dir, &near, commit, None, None).await.unwrap()
}

fn untracked(work: &Path) -> String {
    git(work, &["status", "--porcelain", "--ignored"])
}

/// What an agent with hostd's uid may do to a base: what it is called, and how it is done.
type Damage = (&'static str, fn(&Path));

fn damages() -> Vec<Damage> {
    vec![
        ("a new file", |tree| write(tree, "good", "good\n")),
        ("an ignored file", |tree| write(tree, "good.log", "good\n")),
        ("a file that git is told to leave out", |tree| {
            write(tree, "good", "good\n");
            write(tree, ".git/info/exclude", "good\n");
        }),
        ("a changed file with its old time", |tree| {
            let path = tree.join("src/one.txt");
            let time = path.metadata().unwrap().modified().unwrap();
            std::fs::write(&path, "two\n").unwrap();
            std::fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
        }),
        ("a changed file that the index assumes unchanged", |tree| {
            std::fs::write(tree.join("src/one.txt"), "changed\n").unwrap();
            git(tree, &["update-index", "--assume-unchanged", "src/one.txt"]);
        }),
        ("a file that is gone", |tree| std::fs::remove_file(tree.join("src/two.txt")).unwrap()),
        ("a mode", |tree| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(tree.join("src/one.txt"), mode).unwrap();
        }),
        ("a hook", |tree| write(tree, ".git/hooks/post-checkout", "#!/bin/sh\n")),
        ("a setting", |tree| {
            let path = tree.join(".git/config");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, format!("{text}[alias]\n\tx = !true\n")).unwrap();
        }),
        ("an empty folder", |tree| std::fs::create_dir(tree.join("good")).unwrap()),
    ]
}

#[tokio::test]
async fn a_verification_never_sees_what_was_written_to_a_base() {
    if !can_be_root("a_verification_never_sees_what_was_written_to_a_base") {
        return;
    }
    futures::future::join_all(damages().into_iter().map(async |(what, damage)| {
        let fixture = Fixture::new().await;
        let (_agent, workspace) = fixture.prepare("a", Wanted::Overlay).await;
        write(&workspace.path, "other", "other\n");
        git(&workspace.path, &["add", "-A"]);
        git(&workspace.path, &["commit", "-qm", "mine"]);
        let mine = git(&workspace.path, &["rev-parse", "HEAD"]);
        fixture.workspaces.collect(&fixture.agent_dir("a"), &fixture.wish("a")).await.unwrap();
        damage(&base(&fixture).join("tree"));
        for commit in [mine, fixture.head()] {
            let checked = verify(&fixture, &format!("v-{commit}"), &commit).await;
            assert_eq!(untracked(&checked.path), "", "{what}");
            assert!(!checked.path.join("good").exists(), "{what}");
            assert!(!checked.path.join("good.log").exists(), "{what}");
            assert!(!checked.path.join(".git/hooks/post-checkout").exists(), "{what}");
            assert_eq!(std::fs::read_to_string(checked.path.join("src/one.txt")).unwrap(), "one\n", "{what}");
            assert_eq!(git(&checked.path, &["config", "--default", "none", "alias.x"]), "none", "{what}");
        }
    }))
    .await;
}

#[tokio::test]
async fn the_next_agent_starts_from_a_base_made_anew_and_is_told_why() {
    if !can_be_root("the_next_agent_starts_from_a_base_made_anew_and_is_told_why") {
        return;
    }
    futures::future::join_all(damages().into_iter().map(async |(what, damage)| {
        let fixture = Fixture::new().await;
        let (sender, damages) = std::sync::mpsc::channel();
        fixture.workspaces.on_damage(move |damage| sender.send(damage.clone()).unwrap());
        fixture.prepare("a", Wanted::Overlay).await;
        damage(&base(&fixture).join("tree"));
        let (agent, workspace) = fixture.prepare("b", Wanted::Overlay).await;
        assert_eq!(untracked(&workspace.path), "", "{what}");
        assert_eq!(std::fs::read_to_string(workspace.path.join("src/one.txt")).unwrap(), "one\n", "{what}");
        let told = workspace.warnings.join("\n");
        assert!(told.contains("was changed from outside and was made anew"), "{what}: {told}");
        let told = damages.try_recv().unwrap();
        assert_eq!((told.commit, told.repository), (fixture.head(), fixture.repo.clone()), "{what}");
        write(&workspace.path, "b.txt", "b\n");
        let wish = hostd::workspace::Collect { commit_mode: CommitMode::Auto, ..fixture.wish("b") };
        let collected = fixture.workspaces.collect(&agent, &wish).await.unwrap();
        assert_eq!(collected.diff.files, 1, "{what}");
        let (_, workspace) = fixture.prepare("c", Wanted::Overlay).await;
        assert_eq!(workspace.warnings, Vec::<String>::new(), "{what}: told once");
    }))
    .await;
}

#[tokio::test]
async fn work_on_a_base_that_is_damaged_meanwhile_is_collected_without_the_damage() {
    if !can_be_root("work_on_a_base_that_is_damaged_meanwhile_is_collected_without_the_damage") {
        return;
    }
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Overlay).await;
    write(&workspace.path, "mine.txt", "mine\n");
    write(&base(&fixture).join("tree"), "good", "good\n");
    let wish = hostd::workspace::Collect { commit_mode: CommitMode::Auto, ..fixture.wish("a") };
    let collected = fixture.workspaces.collect(&agent, &wish).await.unwrap();
    let files = fixture.git(&["diff", "--name-only", "HEAD", collected.head_commit.as_deref().unwrap()]);
    assert_eq!(files, "mine.txt");
    assert_eq!(std::fs::read_to_string(workspace.path.join("mine.txt")).unwrap(), "mine\n");
}

#[tokio::test]
async fn a_verification_refuses_objects_that_are_not_what_their_name_says() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        write(&workspace.path, "test.sh", "exit 1\n");
        git(&workspace.path, &["add", "-A"]);
        git(&workspace.path, &["commit", "-qm", "mine"]);
        let mine = git(&workspace.path, &["rev-parse", "HEAD"]);
        fixture.workspaces.collect(&agent, &fixture.wish("a")).await.unwrap();
        let blob = fixture.git(&["rev-parse", &format!("{mine}:test.sh")]);
        // The content of another blob under the name of this one.
        write(fixture.folder(), "forged", "exit 0\n");
        let forged = fixture.git(&["hash-object", "-w", "../forged"]);
        let loose = |id: &str| fixture.repo.join(".git/objects").join(&id[..2]).join(&id[2..]);
        std::fs::remove_file(loose(&blob)).unwrap();
        std::fs::copy(loose(&forged), loose(&blob)).unwrap();
        let dir = fixture.agent_dir("v");
        let near = fixture.resolved().await;
        let refused = fixture.workspaces.fresh_checkout(&dir, &near, &mine, None, None).await.unwrap_err();
        let refused = protocol::chain(&refused);
        assert!(refused.contains("test.sh") || refused.contains("hash mismatch"), "{kind:?}: {refused}");
    }
}

#[tokio::test]
async fn ignored_files_that_go_with_a_workspace_are_named() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        assert_eq!(fixture.workspaces.not_kept(&agent).await.unwrap(), Vec::<String>::new());
        write(&workspace.path, "run.log", "x\n");
        write(&workspace.path, "deep.log/inner", "x\n");
        git(&workspace.path.join("deep.log"), &["init", "-q"]);
        let named = fixture.workspaces.not_kept(&agent).await.unwrap();
        assert_eq!(named, ["deep.log/ (a repository of its own)", "run.log"], "{kind:?}");
    }
}
