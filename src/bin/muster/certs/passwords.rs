//! Passwords: out of a file or the environment, never out of the command line.

use super::authority::{hex, random};
use muster::config::{Config, Key, Lock, Password, PasswordSource, SetFile, Setting};
use muster::tls::password;
use std::ffi::OsString;

/// A password, and the setting that it is from.
pub struct Given {
    pub password: Password,
    pub setting: String,
}

/// The passwords that may open a file: the one in this file, or those of the environment, a client's first.
pub fn given(
    file: Option<&str>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<Given>, String> {
    let locks = match file {
        Some(path) => {
            let file = SetFile::new(path.to_owned());
            vec![Lock { source: PasswordSource::File(file), setting: "--password_file".to_owned() }]
        }
        None => of_environment(environment).map_err(|error| error.to_string())?,
    };
    let mut found = Vec::new();
    for lock in locks {
        if let Some(password) = password(&lock).map_err(|error| error.to_string())? {
            found.push(Given { password, setting: lock.setting });
        }
    }
    Ok(found)
}

fn of_environment(environment: impl IntoIterator<Item = (OsString, OsString)>) -> muster::error::Result<Vec<Lock>> {
    let is_one = |name: &OsString| {
        let setting = name.to_str().and_then(Setting::of_variable);
        setting.is_some_and(|setting| {
            matches!(
                setting.key,
                Key::ClientPassword
                    | Key::ServerPassword
                    | Key::ClientPasswordFile
                    | Key::ServerPasswordFile
                    | Key::ClientPasswordFd
                    | Key::ServerPasswordFd
            )
        })
    };
    let mut config = Config::new();
    config.load_env(environment.into_iter().filter(|(name, _)| is_one(name)));
    config.set(Key::EnableSsl.setting().name, "1")?;
    config.set(Key::ConfigFilePath.setting().name, "unread")?;
    let settings = config.tls_settings()?.expect("it is on");
    Ok(vec![settings.client_lock, settings.server_lock])
}

/// The one password that is to seal a file; none where none is given.
pub fn one_of(given: Vec<Given>) -> Result<Option<Password>, String> {
    let mut given = given.into_iter();
    let Some(first) = given.next() else { return Ok(None) };
    if let Some(other) = given.find(|other| other.password != first.password) {
        let (first, other) = (first.setting, other.setting);
        return Err(format!(
            "{first} and {other} differ: expected one password, for a node's file is both the client's and the server's"
        ));
    }
    if first.password.reveal().is_empty() {
        return Err(format!("{} is empty: expected a password", first.setting));
    }
    Ok(Some(first.password))
}

/// A password that nobody can guess.
pub fn made_up() -> Result<Password, String> {
    Ok(Password::new(hex(&random::<16>()?)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::TestFolder;
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn environment(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn one(file: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let password = one_of(given(file, environment(variables))?)?;
        Ok(password.map(|password| password.reveal().to_owned()))
    }

    #[test]
    fn a_file_beats_the_environment_in_which_both_passwords_must_be_one() {
        let place = TestFolder::new();
        let path = place.path.join("password");
        fs::write(&path, "from a file\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let client = ("MUSTER_CLIENT_PASSWORD", "a");
        let found = |file, variables: &[_]| one(file, variables).unwrap();
        assert_eq!(found(None, &[]), None);
        assert_eq!(found(None, &[client]).as_deref(), Some("a"));
        assert_eq!(found(None, &[client, ("MUSTER_SERVER_PASSWORD", "a")]).as_deref(), Some("a"));
        assert_eq!(found(path.to_str(), &[client]).as_deref(), Some("from a file"));
        let named = ("MUSTER_SERVER_PASSWORD_FILE", path.to_str().unwrap());
        assert_eq!(found(None, &[named, ("MUSTER_ENABLE_SSL", "no")]).as_deref(), Some("from a file"));
        let differ = one(None, &[client, named]).unwrap_err();
        assert!(
            differ.starts_with("MUSTER_CLIENT_PASSWORD and MUSTER_SERVER_PASSWORD_FILE differ: expected"),
            "{differ}"
        );
        assert!(
            one(Some("/none"), &[]).is_err_and(|why| why.contains("--password_file is \"/none\", which can't be read"))
        );
    }

    #[test]
    fn what_is_made_up_is_never_the_same() {
        let made = [made_up().unwrap(), made_up().unwrap()];
        assert!(made.iter().all(|password| password.reveal().len() == 32));
        assert!(made[0] != made[1]);
    }
}
