"""Grammars as people write them, each with texts that are right and a few that are nearly so."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    name: str
    syntax: str
    grammar: str
    accept: tuple[str, ...]
    reject: tuple[str, ...]


SAMPLES = (
    Sample(
        "sums",
        "gbnf",
        r"""
# lines of equations
root    ::= line+
line    ::= side "=" gap side "\n"
side    ::= atom ([-+*/] gap atom)*
atom    ::= name | digits | "(" gap side ")" gap
name    ::= [a-z] [a-z0-9_]* gap
digits  ::= [0-9]+ gap
gap     ::= [ \t\n]*
""",
        ("1=2\n", "a + 12*(b - 3) = c\n", "x = y\n\n1 =1\n \n", "((a_1))/2=\n3\n"),
        ("1=2", "=1\n", "a+=1\n", "1 2=3\n", "(1=1\n"),
    ),
    Sample(
        "json",
        "gbnf",
        r"""
root    ::= blank map
map     ::= "{" blank (member ("," blank member)*)? "}" blank
member  ::= quoted ":" blank thing
thing   ::= map | row | quoted | amount | ("true" | "false" | "null") blank
row     ::= "[" blank thing? ("," blank thing)* "]" blank
quoted  ::= "\"" letter* "\"" blank
letter  ::= "\\" escape | [^"\\\x00-\x1F\x7F]
escape  ::= ["\\/bfnrt] | "u" [0-9a-fA-F]{4}
amount  ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? blank
blank   ::= | " " | "\n" [ \t]{0,20}
""",
        (
            "{}",
            '{"a":1}',
            '{ "a": [1, -2.50, 3e+1, null],\n  "b\\n\\u00e9é": {"c": ""}}',
            '{"x":[[],[true]]}\n\t',
        ),
        ("[]", "{,}", '{"a" 1}', '{"a":01}', '{"a":1,}', '{"a":"\\x"}', '{"a":1}  '),
    ),
    Sample(
        "list",
        "gbnf",
        'root ::= ("- " [^\\r\\n\\u2028]+ "\\n")+\n',
        ("- a\n", "- one\n- two, three\n- 4\n", "- - -\n", "- é日\n"),
        ("", "- \n", "- a", "-a\n", "- a\n\n"),
    ),
    Sample(
        "chess",
        "gbnf",
        r"""
root   ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")*
move   ::= (pawn | piece | castle) [+#]?
piece  ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn   ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBQR])?
castle ::= "O-O" "-O"?
""",
        ("1. e4 e5\n", "1. e4 e5\n2. Nf3 Nc6\n3. Bb5 a6\n", "1. exd8=Q+ O-O-O#\n10. R1a3 Qh4xe1\n"),
        ("1. e4\n", "1. e9 e5\n", "2. e4 e5\n", "1. O-O-O-O e5\n", "1. Nf3 e5\n0. e4 e5\n"),
    ),
    Sample(
        "sql",
        "gbnf",
        r"""
root   ::= select ";"
select ::= "SELECT " ("DISTINCT ")? fields " FROM " table (" " join)* (" WHERE " cond)? order? limit?
fields ::= "*" | field (", " field)*
field  ::= func "(" name ")" | name ("." name)? (" AS " name)?
func   ::= "COUNT" | "SUM" | "MIN" | "MAX"
table  ::= name (" " name)? | "(" select ")"
join   ::= ("INNER" | "LEFT") " JOIN " name " ON " name "." name " = " name "." name
cond   ::= test | cond " AND " test | cond " OR " test
test   ::= name op value | name " IS " ("NOT ")? "NULL" | name " IN (" value (", " value)* ")"
op     ::= " = " | " <> " | " < " | " <= " | " > " | " >= " | " LIKE "
value  ::= "-"? [0-9]+ ("." [0-9]+)? | "'" ([^'] | "''")* "'"
order  ::= " ORDER BY " name (" ASC" | " DESC")? (", " name (" ASC" | " DESC")?)*
limit  ::= " LIMIT " [1-9] [0-9]{0,5}
name   ::= [a-z] [a-z0-9_]{0,30}
""",
        (
            "SELECT * FROM t;",
            "SELECT a, t.b AS c, COUNT(d) FROM users u WHERE a = 'it''s' AND b <= -1.5 ORDER BY a DESC, b;",
            "SELECT DISTINCT a FROM (SELECT b FROM c);",
            "SELECT a FROM b INNER JOIN c ON b.x = c.y WHERE q IS NOT NULL OR r IN (1, 'z');",
        ),
        ("SELECT * FROM t", "SELECT FROM t;", "SELECT a FROM b WHERE a == 1;", "SELECT a FROM b LIMIT 01;"),
    ),
    Sample(
        "c",
        "gbnf",
        r"""
root    ::= function*
function ::= type name "(" (type name ("," type name)*)? ")" block
type    ::= ("int" | "char" | "float") gap
name    ::= [a-zA-Z_] [a-zA-Z_0-9]*
block   ::= "{" doing* "}"
doing   ::= type name gap "=" gap value ";" | name gap "=" gap value ";" | call ";" |
            "return" gap value ";" | "while" test block | "if" test block ("else" block)? |
            "//" [^\n]* "\n" | "/*" ([^*] | "*" [^/])* "*/"
test    ::= "(" value ("<" | "<=" | "==" | "!=" | ">=" | ">") value ")"
value   ::= product (("+" | "-") product)*
product ::= one (("*" | "/") one)*
one     ::= name | [0-9]+ | "-" one | call | "(" value ")" | text
call    ::= name gap? "(" (value ("," gap? value)*)? ")"
text    ::= "\"" ([^"\\\n] | "\\" [^\n])* "\""
gap     ::= [ \t\n]+
""",
        (
            "",
            "int main(){}",
            "int main(char c){int x = 1;y = x+2*(f(3, 4)-z);return x;if(a<b){g ();}else{}}",
            'char f(){int intx = "a\\"b";while(i<=10){/* a ** b */// c\n}}',
        ),
        ("int main()", "intmain(){}", "int f(){x=1;}", "int f(){return 1}", 'int f(){int x = "a;}'),
    ),
    Sample(
        "words",
        "gbnf",
        r"""
root ::= sentence (" " sentence)*
sentence ::= [A-Z] [a-z']* (","? " " word)* [.!?]
word ::= [a-z] [a-z']* ("-" [a-z]+)? | number
number ::= [0-9]{1,3} ("," [0-9]{3})*
""",
        ("Yes.", "I have 1,234 cats, not dogs! It's well-known.", "A b 12."),
        ("yes.", "Yes", "Yes..", "I have 1,23 cats.", "A  b."),
    ),
    Sample(
        "scripts",
        "gbnf",
        r"""
root ::= part+ ([ \t\n] part+)*
part ::= kana | kanji | mark | [０-９]{1,4}
kana ::= [ぁ-ゟ] | [ァ-ヿ]
kanji ::= [一-鿿]
mark ::= "、" | "。" | "「" part+ "」"
""",
        ("日本", "これは「テスト」です。 １２３", "あ\tア"),
        ("", "abc", "日本 ", "「」", "日本  語"),
    ),
    Sample(
        "left",
        "gbnf",
        r"""
root ::= list | pairs
list ::= list "," value | value
pairs ::= key "=" value (";" pairs)?
value ::= key | "'" [^']{0,8} "'" | value "[" [0-9]{1,2} "]"
key ::= [a-z]{1,6} | key "." [a-z]{1,6}
""",
        ("a", "a,b.c,'x y'[1][22]", "a=b;c.d=e", "abcdef.abcdef"),
        ("a,", "abcdefg", "a=b,c", "'123456789'", "a[123]", "a..b"),
    ),
    Sample(
        "empty",
        "gbnf",
        'root ::= a* "." (b | c | )\na ::= | "x" | "xy" a\nb ::= c* "z"?\nc ::= "" "w" ""\n',
        (".", "xxyx.", "xyxyxy.www", ".wwz", ".z"),
        ("", "y.", ".zz", "x", ".zw"),
    ),
    Sample(
        "xml",
        "w3c",
        """
[1]  document ::= prolog? element Misc*    /* like XML's own */
[2]  prolog   ::= '<?xml version="1.' [0-9]+ '"?>' S?
[3]  element  ::= EmptyTag | STag content ETag    [ wfc: the names match ]
[4]  EmptyTag ::= '<' Name (S Attribute)* S? '/>'
[5]  STag     ::= '<' Name (S Attribute)* S? '>'
[6]  ETag     ::= '</' Name S? '>'
[7]  Attribute ::= Name S? '=' S? ('"' [^<&"]* '"' | "'" [^<&']* "'")
[8]  content  ::= CharData? ((element | Reference | Comment) CharData?)*
[9]  CharData ::= [^<&]+
[10] Reference ::= '&' Name ';' | '&#' [0-9]+ ';' | '&#x' [0-9a-fA-F]+ ';'
[11] Comment  ::= '<!--' ((Char - '-') | ('-' (Char - '-')))* '-->'
[12] Char     ::= #x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]
[13] Name     ::= NameStart (NameStart | [-.0-9])*
[14] NameStart ::= [:A-Z_a-z] | [#xC0-#xD6] | [#x370-#x1FFF]
[15] S        ::= (#x20 | #x9 | #xD | #xA)+
[16] Misc     ::= Comment | S
""",
        (
            "<a/>",
            '<?xml version="1.0"?>\n<a b="c" d = \'"\'>x &amp; &#x1F; <!-- - c --><b></b>\n</a>\n',
            "<Àb>é</Àb><!---->",
            "<a></b>",
        ),
        ("", "<a>", "<a b=c/>", "<1/>", "<a>&</a>", "<a><!-- -- --></a>", "<a/>x"),
    ),
    Sample(
        "wirth",
        "iso",
        """
(* a small language (* with a comment in a comment *) *)
program statement = "BEGIN" , gap , { assignment , ";" , gap } , "END" , [ "." ] ;
assignment = identifier , ":=" , ( number | identifier | text ) ;
identifier = capital , { capital | digit } ;
number = [ "-" ] , digit , { digit } ;
text = '"' , { any character - '"' } , '"' ;
any character = capital | digit | gap | '"' | "'" ;
capital = "A" | "B" | "E" | "N" | "D" | "G" | "I" ;
digit = "0" | "1" | "2" | "3" ;
gap = 1 * " " ;
""",
        ("BEGIN END", 'BEGIN A:=12; END1:=-3; BEG:="A\'B 1"; END.', "BEGIN E:=N; END"),
        ("BEGIN  END", "BEGIN A=1; END", 'BEGIN A:="""; END', "BEGIN A:=1 END", "begin end"),
    ),
)


def mutations(rng: random.Random, texts: Sequence[str], count: int) -> Iterator[str]:
    """Texts with one to three characters cut, doubled, swapped or taken from elsewhere."""
    chars = sorted({char for text in texts for char in text} | set(" \nZ9é,\"'"))
    for _ in range(count):
        made = rng.choice(texts)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            at = rng.randrange(len(made) + 1)
            end = at + rng.choice((1, 1, 1, 2, 5))
            match rng.randrange(5):
                case 0:
                    made = made[:at] + made[end:]
                case 1:
                    made = made[:at] + made[at:end] + made[at:]
                case 2:
                    made = made[:at] + rng.choice(chars) + made[at + 1 :]
                case 3:
                    made = made[:at] + rng.choice(chars) + made[at:]
                case _:
                    other = rng.choice(texts)
                    made = made[:at] + other[rng.randrange(len(other) + 1) :]
        yield made
