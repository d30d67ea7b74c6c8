//! Differences: what is told is exact, comes in pieces, and changes nothing.

use hostd::workspace::{Form, Piece, Wanted, WorkspaceError};
use protocol::compare::{FileStatus, Sides};
use tokio::sync::mpsc;

use super::fixture::{Fixture, fingerprint, git, kinds, write};

/// What was told.
#[derive(Debug, Default)]
struct Told {
    sides: Option<Sides>,
    patch: Vec<u8>,
    files: Vec<(String, FileStatus)>,
    mail: Vec<(String, Vec<u8>)>,
}

fn add(told: &mut Told, piece: Piece) {
    match piece {
        Piece::Sides(sides) => told.sides = Some(sides),
        Piece::Patch(bytes) => told.patch.extend(bytes),
        Piece::Files(changes) => told
            .files
            .extend(changes.into_iter().map(|c| (String::from_utf8_lossy(&c.path).into_owned(), c.status))),
        Piece::File { name, bytes } => match told.mail.last_mut().filter(|(last, _)| *last == name) {
            Some((_, file)) => file.extend(bytes),
            None => told.mail.push((name, bytes)),
        },
    }
}

async fn listen<E>(
    telling: impl Future<Output = Result<(), E>>,
    mut pieces: mpsc::Receiver<Piece>,
) -> Result<Told, E> {
    let mut told = Told::default();
    let hear = async {
        while let Some(piece) = pieces.recv().await {
            add(&mut told, piece);
        }
    };
    let (result, ()) = tokio::join!(telling, hear);
    result.map(|()| told)
}

async fn of_workspace(
    fixture: &Fixture,
    agent: &std::path::Path,
    form: Form,
) -> Result<Told, WorkspaceError> {
    let (reader, pieces) = mpsc::channel(1);
    let telling = async move { fixture.workspaces.compare_workspace(agent, form, &reader).await };
    listen(telling, pieces).await
}

async fn mail(fixture: &Fixture, from: &str, to: &str) -> Told {
    let repository = fixture.workspaces.locate(&fixture.repo).await.unwrap();
    let (reader, pieces) = mpsc::channel(1);
    let telling = async move { fixture.workspaces.mail(&repository, (from, to), &reader).await };
    listen(telling, pieces).await.unwrap()
}

#[tokio::test]
async fn work_so_far_is_told_with_uncommitted_files_and_leaves_no_trace() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        let (agent, workspace) = fixture.prepare("a", kind).await;
        let untouched = of_workspace(&fixture, &agent, Form::Patch).await.unwrap();
        assert!(untouched.patch.is_empty() && untouched.sides.unwrap().from == fixture.head(), "{kind:?}");
        let top = &workspace.path;
        write(top, "README", "committed\n");
        git(top, &["commit", "-qam", "one"]);
        write(top, "src/one.txt", "staged\n");
        git(top, &["add", "src/one.txt"]);
        write(top, "src/two.txt", "unstaged\n");
        write(top, "new \u{e4}.txt", "untracked\n");
        write(top, "noise.log", "ignored\n");
        let before = fingerprint(top, &[]);
        let told = of_workspace(&fixture, &agent, Form::Files).await.unwrap();
        let mut files = told.files;
        files.sort();
        assert_eq!(
            files,
            [
                ("README".to_owned(), FileStatus::Modified),
                ("new \u{e4}.txt".to_owned(), FileStatus::Added),
                ("src/one.txt".to_owned(), FileStatus::Modified),
                ("src/two.txt".to_owned(), FileStatus::Modified),
            ],
            "{kind:?}"
        );
        let told = of_workspace(&fixture, &agent, Form::Patch).await.unwrap();
        assert_eq!(fingerprint(top, &[]), before, "{kind:?}");
        // The patch is the difference: on the base it gives the same files.
        let patch = fixture.folder().join("work.patch");
        std::fs::write(&patch, &told.patch).unwrap();
        fixture.git(&["apply", patch.to_str().unwrap()]);
        assert_eq!(std::fs::read(fixture.repo.join("new \u{e4}.txt")).unwrap(), b"untracked\n");
        assert_eq!(std::fs::read(fixture.repo.join("src/one.txt")).unwrap(), b"staged\n");
    }
}

#[tokio::test]
async fn a_workspace_without_its_git_folder_shows_no_other_repository() {
    let fixture = Fixture::new().await;
    let (agent, workspace) = fixture.prepare("a", Wanted::Clone).await;
    std::fs::remove_dir_all(workspace.path.join(".git")).unwrap();
    let refused = of_workspace(&fixture, &agent, Form::Patch).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::WorkspaceTampered { .. }), "{refused:?}");
}

#[tokio::test]
async fn commits_in_a_line_are_a_file_each_and_others_are_one_that_has_their_effect() {
    let fixture = Fixture::new().await;
    let base = fixture.head();
    fixture.git(&["checkout", "-qb", "side"]);
    fixture.write("README", "one\n");
    fixture.git(&["commit", "-qam", "first: a/b"]);
    fixture.write("README", "two\n");
    fixture.git(&["commit", "-qam", "second"]);
    let line = fixture.head();
    let told = mail(&fixture, &base, &line).await;
    let names: Vec<_> = told.mail.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["0001-first-a-b.patch", "0002-second.patch"]);
    assert!(told.sides.unwrap().notes.is_empty());
    // A merge among them.
    fixture.git(&["checkout", "-qb", "other", &base]);
    fixture.write("other.txt", "other\n");
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-qm", "other"]);
    fixture.git(&["merge", "-q", "--no-ff", "-m", "joined", "side"]);
    let merged = fixture.head();
    let told = mail(&fixture, &base, &merged).await;
    assert_eq!((told.mail.len(), told.sides.unwrap().notes.len()), (1, 1));
    let file = fixture.folder().join("one.patch");
    std::fs::write(&file, &told.mail[0].1).unwrap();
    fixture.git(&["checkout", "-qB", "applied", &base]);
    fixture.git(&["am", "-q", file.to_str().unwrap()]);
    assert_eq!(fixture.git(&["rev-parse", "HEAD^{tree}"]), fixture.git(&["rev-parse", "other^{tree}"]));
    assert_eq!(fixture.git(&["log", "-1", "--format=%an %s"]), "Agent joined");
    assert!(mail(&fixture, &base, &base).await.mail.is_empty());
}

#[tokio::test]
async fn a_reader_that_goes_ends_the_telling() {
    let fixture = Fixture::new().await;
    let base = fixture.head();
    fixture.write("large.txt", &"a line\n".repeat(500_000));
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-qm", "large"]);
    let repository = fixture.workspaces.locate(&fixture.repo).await.unwrap();
    let (reader, mut pieces) = mpsc::channel(1);
    let head = fixture.head();
    let telling = fixture.workspaces.compare(&repository, (&base, &head), Form::Patch, &reader);
    let leave = async {
        assert!(matches!(pieces.recv().await, Some(Piece::Sides(_))));
        pieces.close();
        while pieces.recv().await.is_some() {}
    };
    let (told, ()) = tokio::join!(telling, leave);
    assert!(matches!(told, Err(WorkspaceError::Interrupted { .. })), "{told:?}");
}
