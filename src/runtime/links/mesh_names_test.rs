//! Links over TLS between nodes that demand that each shows a certificate with its node id. And the order in which strangers are
//! looked at.

use super::*;
use crate::runtime::links::mesh::STRANGERS_AT_ONCE;
use crate::runtime::links::mesh_connections::MeshConnections;
use crate::tls::testing::{settings_in, wrapped_by, Files};

/// A node's own files: certificates with these node ids, the first for where it dials, the second for where it is dialled.
fn of_ids(client: &str, server: &str, ca: Option<&Files>) -> Files {
    let files = Files::new();
    let of = |id: &str| ca.unwrap_or(&files).of_node(id);
    let (client, server, root) = (of(client), of(server), ca.unwrap_or(&files).ca.pem());
    files.write("client.pem", client);
    files.write("server.pem", server);
    files.write("ca.pem", root);
    files
}

fn strict(files: &Files) -> Side {
    let files = files.folder.to_path_buf();
    let wrap: Wrap = Arc::new(move |transport, side| wrapped_by(&settings_in(&files, []), transport, side));
    Side::strict(wrap, Upgrade::none(), Identities::new(true))
}

/// The nodes 0 and 1, with these files.
fn pair(lower: &Files, higher: &Files) -> (Side, Side) {
    let (mut lower, mut higher) = (strict(lower), strict(higher));
    let addresses = [lower.address(), higher.address()];
    lower.form(&formed(0, addresses));
    higher.form(&formed(1, addresses));
    (lower, higher)
}

/// Why the link that the lower node dials is refused.
fn refused(lower: &mut Side, higher: &mut Side) -> String {
    lower.open(KEY[1]);
    until(|| {
        lower.now = lower.now + Duration::from_millis(1);
        lower.turn();
        higher.turn();
        (!lower.mail.is_empty()).then_some(())
    });
    assert!(higher.mail.is_empty(), "it has let nobody in");
    lower.failure()
}

#[test]
fn each_shows_its_own_certificate_and_no_other_will_do() {
    let lower = of_ids("0", "0", None);
    let higher = of_ids("1", "1", Some(&lower));
    let (mut low, mut high) = pair(&lower, &higher);
    low.open(KEY[1]);
    assert!(lower_dialled(&mut low, &mut high));

    // The node that is dialled shows another node's certificate.
    let another = of_ids("1", "7", Some(&lower));
    let (mut low, mut high) = pair(&lower, &another);
    low.open(KEY[1]);
    until(|| {
        low.turn();
        high.turn();
        (!low.mail.is_empty()).then_some(())
    });
    let wrong =
        "what answers there is no peer: node \"1\" shows a certificate with the node id \"7\": expected the name \
                 URI:muster:node:1";
    assert_eq!(low.failure(), wrong);
    // That node has the link already, and is told on it.
    let (transport, ahead) = high.link();
    let mut link = Link::new(transport, &ahead);
    let failure = until(|| match link.peek().unwrap() {
        Some(Arrival::Revoke(failure)) => Some(failure),
        Some(_) => panic!("something else comes"),
        None => None,
    });
    assert!(wrong.ends_with(&failure.cause) && failure.group == Some(GroupId::WORLD), "{failure:?}");

    // The node that dials shows another node's certificate.
    let another = of_ids("7", "0", Some(&lower));
    let (mut low, mut high) = pair(&another, &higher);
    assert_eq!(refused(&mut low, &mut high), crate::runtime::links::handshake::MISNAMED);
}

/// The nodes are told of each other late, as in a large cluster, where a node is told only of some of the others.
#[test]
fn a_hello_of_one_of_whom_nobody_has_told_waits_until_somebody_has() {
    for id in ["1", "7"] {
        let lower = of_ids("0", "0", None);
        let higher = of_ids("1", "1", Some(&lower));
        let (mut low, mut high) = (strict(&lower), strict(&higher));
        let addresses = [low.address(), high.address()];
        high.form(&formed(1, addresses));
        let mut partly = formed(0, addresses);
        let (own, other) = (partly.members.find(0).unwrap(), partly.members.find(1).unwrap());
        partly.members = Members::new(vec![Arc::new(own)]);
        low.form(&partly);
        high.open(KEY[0]);
        until(|| {
            low.turn();
            high.turn();
            (!low.asked_for.is_empty()).then_some(())
        });
        assert_eq!((&low.asked_for[..], low.mail.len()), (&[1][..], 0));
        assert_eq!(low.mesh.connections.unproved(), 0, "it knows the secret");
        let told = Member { node_id: id.to_owned(), ..other };
        assert_eq!(low.mesh.located(&told, &low.poller), None);
        match id {
            "1" => assert!(!lower_dialled(&mut low, &mut high)),
            _ => {
                until(|| {
                    low.turn();
                    high.turn();
                    (!high.mail.is_empty()).then_some(())
                });
                assert!(low.mail.is_empty());
            }
        }
    }
}

/// Connections that have proved nothing are looked at a few at a time, and after the others.
#[test]
fn strangers_are_looked_at_a_few_at_a_time() {
    let count = |connections: &MeshConnections| connections.handshakes.len();
    let mut side = one(&plain(), nowhere());
    let mut strangers: Vec<Peer> = (0..3 * STRANGERS_AT_ONCE).map(|_| Peer::dial(&side)).collect();
    until(|| {
        side.accept();
        side.mesh.look_again(&side.poller);
        (count(&side.mesh.connections) == strangers.len()).then_some(())
    });
    while side.mesh.look_again(&side.poller) {}
    strangers.iter_mut().for_each(|stranger| stranger.stream.write_all(b"GET / HTTP/1.1\r\n\r\n and so on").unwrap());
    // All that has come is known before the first look.
    until(|| {
        side.poller.poll(Some(Duration::ZERO)).unwrap();
        let ready: Vec<Token> = side.poller.ready().map(|ready| ready.token).collect();
        ready.into_iter().for_each(|token| _ = side.mesh.ready(token, &side.poller));
        (side.mesh.connections.line.len() == strangers.len()).then_some(())
    });
    for turn in 1..=3 {
        side.mesh.expire_at(side.now + 2 * HELLO_WAIT); // their time is up, but what they said came before that
        assert_eq!(count(&side.mesh.connections), (4 - turn) * STRANGERS_AT_ONCE);
        assert_eq!(side.mesh.look_again(&side.poller), turn < 3);
    }
    assert_eq!(count(&side.mesh.connections), 0);
}
