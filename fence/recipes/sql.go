package recipes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
)

// Schema makes the tables of these recipes. Tokens must be compared byte by byte, as SQLite does: in PostgreSQL give the columns COLLATE "C",
// in MySQL CHARACTER SET ascii COLLATE ascii_bin (or utf8mb4_bin). A row without a fence has an empty one, which sorts before all tokens;
// NULL would compare with none.
const Schema = `
	CREATE TABLE settings (id TEXT PRIMARY KEY, value TEXT NOT NULL, fence TEXT NOT NULL DEFAULT '');
	CREATE TABLE terms (election TEXT PRIMARY KEY, token TEXT NOT NULL);`

// Conn is a *sql.DB, *sql.Conn or *sql.Tx.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// SetRow updates a row that exists, unless a newer term has written or taken it.
func SetRow(ctx context.Context, db Conn, t election.Term, id, value string) error {
	token := t.Token()
	return one(db.ExecContext(ctx, `
		UPDATE settings SET value = ?, fence = ? WHERE id = ? AND fence <= ?`,
		value, token, id, token))
}

// PutRow inserts or updates a row, unless a newer term has written or taken it.
func PutRow(ctx context.Context, db Conn, t election.Term, id, value string) error {
	return one(db.ExecContext(ctx, `
		INSERT INTO settings (id, value, fence) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET value = excluded.value, fence = excluded.fence
		WHERE settings.fence <= excluded.fence`,
		id, value, t.Token()))
}

// TakeRow reads a row that exists, and keeps older terms from writing it after that.
func TakeRow(ctx context.Context, db Conn, t election.Term, id string) (value string, err error) {
	token := t.Token()
	err = db.QueryRowContext(ctx, `
		UPDATE settings SET fence = ? WHERE id = ? AND fence <= ? RETURNING value`,
		token, id, token).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		err = fence.ErrFenced
	}
	return value, err
}

// one turns a statement that affected no row into ErrFenced.
func one(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	switch n, err := result.RowsAffected(); {
	case err != nil:
		return err
	case n == 0:
		return fence.ErrFenced
	}
	return nil
}

// InTerm runs f in a transaction, which is refused if a newer term has had one. All that f reads and writes, in any table, is protected among
// the transactions of InTerm.
func InTerm(ctx context.Context, db *sql.DB, t election.Term, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	// The first statement also locks the election's row: other terms wait for the end of this transaction.
	err = one(tx.ExecContext(ctx, `
		INSERT INTO terms (election, token) VALUES (?, ?)
		ON CONFLICT (election) DO UPDATE SET token = excluded.token
		WHERE excluded.token >= terms.token`,
		t.Key, t.Token()))
	if err != nil {
		return fmt.Errorf("term %d of %q: %w", t.Number, t.Name, err)
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}
