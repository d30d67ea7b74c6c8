//! Many agents on one repository at once: counts, locks and times.

use std::time::Instant;

use hostd::workspace::{Kind, PrepareSpec, Wanted};

use super::fixture::{Fixture, git, is_root, kinds, write};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_at_once_on_one_repository_all_work() {
    for kind in kinds() {
        let fixture = Fixture::new().await;
        for n in 0..200 {
            fixture.write(&format!("files/{n}.txt"), "text\n");
        }
        fixture.git(&["add", "-A"]);
        fixture.git(&["commit", "-qm", "files"]);
        // Whoever holds this lock does not hold up agents.
        std::fs::write(fixture.repo.join(".git/config.lock"), "").unwrap();
        let started = Instant::now();
        let one = async |n: usize| {
            let agent = fixture.agent_dir(&format!("a{n}"));
            let resolved = fixture.workspaces.resolve(&fixture.repo, Some("main")).await.unwrap();
            let spec = PrepareSpec {
                repo: Some(resolved),
                branch: format!("phalanx/run-1/t-{n}"),
                user: None,
                kind,
                prepared: None,
            };
            (agent.clone(), fixture.workspaces.prepare(&agent, &spec).await.unwrap())
        };
        let made = futures::future::join_all((0..100).map(one)).await;
        println!("{kind:?}: 100 prepared in {:?}", started.elapsed());

        let started = Instant::now();
        for (_, workspace) in &made {
            assert_eq!(git(&workspace.path, &["status", "--porcelain"]), "");
        }
        println!("{kind:?}: 100 × git status in {:?}", started.elapsed());
        assert_eq!(fixture.git(&["for-each-ref", "refs/heads", "--format=%(refname)"]), "refs/heads/main");

        let started = Instant::now();
        for (n, (_, workspace)) in made.iter().enumerate() {
            write(&workspace.path, "result.txt", &n.to_string());
        }
        let names: Vec<String> = (0..100).map(|n| format!("a{n}")).collect();
        let collects = made.iter().zip(&names).map(async |((agent, _), name)| {
            fixture.workspaces.collect(agent, &fixture.wish(name)).await.unwrap()
        });
        let collected = futures::future::join_all(collects).await;
        println!("{kind:?}: 100 collected in {:?}", started.elapsed());
        for (n, collected) in collected.iter().enumerate() {
            let name = &collected.uncommitted.as_ref().unwrap().ref_name;
            assert_eq!(fixture.git(&["show", &format!("{name}:result.txt")]), n.to_string());
        }

        let started = Instant::now();
        futures::future::join_all(made.iter().map(|(agent, _)| fixture.workspaces.remove(agent))).await;
        println!("{kind:?}: 100 removed in {:?}", started.elapsed());
        assert!(made.iter().all(|(_, workspace)| !workspace.path.exists()));
    }
}

#[tokio::test]
async fn worktrees_are_made_one_at_a_time_without_errors() {
    let fixture = Fixture::new().await;
    let names: Vec<String> = (0..12).map(|n| format!("w{n}")).collect();
    let made =
        futures::future::join_all(names.iter().map(|name| fixture.prepare(name, Wanted::Worktree))).await;
    let config = std::fs::read(fixture.repo.join(".git/config")).unwrap();
    for (agent, workspace) in &made {
        assert_eq!(workspace.kind, Kind::Worktree);
        assert_eq!(git(&workspace.path, &["status", "--porcelain"]), "");
        write(&workspace.path, "README", "changed\n");
        let name = agent.file_name().unwrap().to_str().unwrap();
        let collected = fixture.workspaces.collect(agent, &fixture.wish(name)).await.unwrap();
        assert!(collected.uncommitted.is_some());
    }
    // One goes; the others, one of them moved away for a while, stay what they were.
    let (gone, moved) = (&made[0], &made[1]);
    let elsewhere = fixture.folder().join("elsewhere");
    std::fs::rename(&moved.1.path, &elsewhere).unwrap();
    fixture.workspaces.remove(&gone.0).await.unwrap();
    std::fs::rename(&elsewhere, &moved.1.path).unwrap();
    assert_eq!(git(&moved.1.path, &["status", "--porcelain"]), "M README".replace("M ", " M ").trim_end());
    assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), 12);
    assert_eq!(std::fs::read(fixture.repo.join(".git/config")).unwrap(), config);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_does_not_wait_for_a_base_that_is_being_made() {
    let fixture = Fixture::new().await;
    let first = fixture.head();
    for n in 0..3000 {
        fixture.write(&format!("many/{}/{n}", n % 50), &n.to_string());
    }
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-qm", "many"]);
    let resolved = fixture.resolved().await;
    let kind = if is_root() { Wanted::Overlay } else { Wanted::Clone };
    let prepare = async {
        fixture.prepare("a", kind).await;
        Instant::now()
    };
    let read = async {
        fixture.workspaces.diff_stat(&resolved.repository, &first, &resolved.commit).await.unwrap();
        fixture.workspaces.land(&resolved.repository, "early", &first, None).await.unwrap();
        Instant::now()
    };
    let (prepared, read) = tokio::join!(prepare, read);
    assert!(read < prepared);
}
