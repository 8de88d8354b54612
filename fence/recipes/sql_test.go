package recipes

import (
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	_ "modernc.org/sqlite"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
)

// database has one row, "1", with the value "first".
func (s *stage) database() *sql.DB {
	path := filepath.Join(s.TempDir(), "data")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	s.Expect(err).NotTo(HaveOccurred())
	s.Cleanup(func() { _ = db.Close() })
	_, err = db.Exec(Schema + `INSERT INTO settings (id, value) VALUES ('1', 'first')`)
	s.Expect(err).NotTo(HaveOccurred())
	return db
}

func (s *stage) row(db Conn, id string) (value string) {
	err := db.QueryRowContext(ctx, `SELECT value FROM settings WHERE id = ?`, id).Scan(&value)
	if !errors.Is(err, sql.ErrNoRows) {
		s.Expect(err).NotTo(HaveOccurred())
	}
	return value
}

func TestRowRefusesWhatAnOlderTermWritesAfterANewerOne(t *testing.T) {
	s := newStage(t)
	db := s.database()
	s.Expect(SetRow(ctx, db, s.old, "1", "of old")).To(Succeed())
	s.Expect(SetRow(ctx, db, s.old, "1", "of old")).To(Succeed(), "the same again is no reason to be fenced")
	s.Expect(SetRow(ctx, db, s.now, "1", "of new")).To(Succeed())

	s.Expect(SetRow(ctx, db, s.old, "1", "late")).To(MatchError(fence.ErrFenced))
	s.Expect(PutRow(ctx, db, s.old, "1", "late")).To(MatchError(fence.ErrFenced))
	s.Expect(s.row(db, "1")).To(Equal("of new"))
	s.Expect(SetRow(ctx, db, s.now, "1", "again")).To(Succeed())
}

func TestUpsertMakesARowAndRefusesAnOlderTermThere(t *testing.T) {
	s := newStage(t)
	db := s.database()
	s.Expect(PutRow(ctx, db, s.old, "2", "of old")).To(Succeed())
	s.Expect(PutRow(ctx, db, s.now, "2", "of new")).To(Succeed())
	s.Expect(PutRow(ctx, db, s.now, "3", "of new")).To(Succeed())

	s.Expect(PutRow(ctx, db, s.old, "2", "late")).To(MatchError(fence.ErrFenced))
	s.Expect(PutRow(ctx, db, s.old, "3", "late")).To(MatchError(fence.ErrFenced))
	s.Expect(s.row(db, "2")).To(Equal("of new"))
	s.Expect(s.row(db, "3")).To(Equal("of new"))
}

func TestRowThatWasTakenKeepsWhatItsTakerRead(t *testing.T) {
	s := newStage(t)
	db := s.database()
	s.Expect(SetRow(ctx, db, s.old, "1", "of old")).To(Succeed())
	s.Expect(TakeRow(ctx, db, s.now, "1")).To(Equal("of old"))

	s.Expect(SetRow(ctx, db, s.old, "1", "late")).To(MatchError(fence.ErrFenced))
	_, err := TakeRow(ctx, db, s.old, "1")
	s.Expect(err).To(MatchError(fence.ErrFenced))
	s.Expect(s.row(db, "1")).To(Equal("of old"))
}

// set returns what sets the row "1" and has no fence of its own.
func set(value string) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.Exec(`UPDATE settings SET value = ? WHERE id = '1'`, value)
		return err
	}
}

func TestTransactionOfAnOlderTermIsRefusedWhateverItWrites(t *testing.T) {
	s := newStage(t)
	db := s.database()
	s.Expect(InTerm(ctx, db, s.old, set("of old"))).To(Succeed())
	s.Expect(InTerm(ctx, db, s.now, func(*sql.Tx) error { return nil })).To(Succeed())

	called := false
	err := InTerm(ctx, db, s.old, func(*sql.Tx) error { called = true; return nil })
	s.Expect(err).To(MatchError(fence.ErrFenced))
	s.Expect(called).To(BeFalse())
	s.Expect(s.row(db, "1")).To(Equal("of old"))
	s.Expect(InTerm(ctx, db, s.now, set("of new"))).To(Succeed())
	s.Expect(s.row(db, "1")).To(Equal("of new"))
}

func TestTransactionThatFailsShutsNobodyOut(t *testing.T) {
	s := newStage(t)
	db := s.database()
	failed := errors.New("failed")
	s.Expect(InTerm(ctx, db, s.now, func(tx *sql.Tx) error { return errors.Join(set("of new")(tx), failed) })).To(MatchError(failed))
	s.Expect(s.row(db, "1")).To(Equal("first"))
	s.Expect(InTerm(ctx, db, s.old, set("of old"))).To(Succeed())
}

// Each term adds to what it read. Whichever comes first, the newer one reads all that the older one will ever have written.
func TestTransactionsOfBothTermsAtOnceNeverMix(t *testing.T) {
	s := newStage(t)
	db := s.database()
	add := func(text string) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			var value string
			if err := tx.QueryRow(`SELECT value FROM settings WHERE id = '1'`).Scan(&value); err != nil {
				return err
			}
			return set(value + text)(tx)
		}
	}
	refused := 0
	for range 50 {
		_, err := db.Exec(`DELETE FROM terms; UPDATE settings SET value = ''`)
		s.Expect(err).NotTo(HaveOccurred())
		var both sync.WaitGroup
		var late, inTime error
		both.Go(func() { late = InTerm(ctx, db, s.old, add("old ")) })
		both.Go(func() { inTime = InTerm(ctx, db, s.now, add("new ")) })
		both.Wait()
		s.Expect(inTime).NotTo(HaveOccurred())
		if late == nil {
			s.Expect(s.row(db, "1")).To(Equal("old new "))
			continue
		}
		refused++
		s.Expect(late).To(MatchError(fence.ErrFenced))
		s.Expect(s.row(db, "1")).To(Equal("new "))
	}
	t.Logf("the older one was refused %d times of 50", refused)
}

func TestTransactionThatWaitedForANewerOneIsRefused(t *testing.T) {
	s := newStage(t)
	db := s.database()
	for _, first := range []election.Term{s.old, s.now} {
		second, want := s.now, "second"
		if first == s.now {
			second, want = s.old, "first"
		}
		_, err := db.Exec(`DELETE FROM terms`)
		s.Expect(err).NotTo(HaveOccurred())
		result := make(chan error, 1)
		s.Expect(InTerm(ctx, db, first, func(tx *sql.Tx) error {
			go func() { result <- InTerm(ctx, db, second, set("second")) }()
			return set("first")(tx)
		})).To(Succeed())
		err = <-result
		s.Expect(errors.Is(err, fence.ErrFenced)).To(Equal(second == s.old), "%v", err)
		s.Expect(s.row(db, "1")).To(Equal(want))
	}
}
